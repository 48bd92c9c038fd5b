"""The record of a round, and the `Stage` that a fault works on.

A fault is a coroutine. It disturbs the cluster, records when and which node led (`Strike`), waits
until the cluster serves again, and leaves all three nodes running and caught up. The rounds are
judged after the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.load import Load
from delaylog.broker.drills.node_watch import LEADS, Held, LogMark, held_by
from delaylog.broker.drills.timeline import Again, wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.broker.history import HistoryRecorder

SERVING_DEADLINE_S: Final = 30.0
"""After this time the drill fails. Shorter times are reported, not judged."""
CALM_S: Final = (0.15, 0.45)
"""Random pause between rounds, so that each fault meets a different moment of the load."""


@dataclass(slots=True)
class Strike:
    """One fault."""

    what: str
    """The case, for drills with several; otherwise empty."""
    node: int
    """The leader when the fault began."""
    fault_ms: float
    """When the fault began."""
    after_ms: float
    """When it was complete: calls that began later were answered by the cluster after the fault."""
    leader_ms: float
    """The latest time at which the old leader may have delivered messages."""
    planned: bool = False
    disturbs: bool = True
    """Whether the leader changed. If not, no message may be repeated."""


@dataclass(slots=True)
class Round:
    """A fault and what was measured of it."""

    strike: Strike
    again: Again | None = None
    silence_ms: tuple[float, float] = (0.0, 0.0)
    """The longest time since the fault without an acknowledged send, and without a delivery."""
    held: dict[int, Held] = field(default_factory=dict)
    """What the process of each node held at the end of the round."""
    drift: int | None = None
    """Of a planned handover: see `LogMark.drift`."""
    catch_up_s: float = 0.0
    duplicates: int = 0
    """Messages that were delivered again during their lease."""
    allowed: int = 0
    """Messages that the old leader delivered in its last 50 ms: the bound of `duplicates`."""
    farthest_ms: int = 0
    """Age of the oldest repeated delivery when the old leader made its last delivery."""
    note: str = ""


@dataclass
class Stage:
    """The cluster, the load and the records of a drill, for the faults."""

    trio: Trio
    load: Load
    recorder: HistoryRecorder
    random: Random
    rounds: list[Round] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Violations that a fault itself has observed."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the report."""

    async def play(self, fault: Fault) -> None:
        """Run one round, and measure its pauses and what the processes hold at its end."""
        await self.calm()
        try:
            await fault(self)
        finally:
            if self.rounds:
                one, ended_ms = self.rounds[-1], wall_ms()
                fault_ms = one.strike.fault_ms
                one.silence_ms = self.load.timeline.longest_silence_ms(fault_ms, ended_ms)
        processes = {node: broker.process_id for node, broker in self.trio.nodes.items()}
        one.held = {node: held_by(process) for node, process in processes.items() if process}

    async def calm(self) -> None:
        """Let the load run for a moment; raises if a client or a node has ended."""
        await asyncio.sleep(self.random.uniform(*CALM_S))
        self.load.check()
        self.trio.check()

    async def serving_again(self, strike: Strike) -> Round:
        """Wait until the cluster serves again, and add the round. Raises DrillError."""
        self.load.check()
        timeline = self.load.timeline
        again = await timeline.serving_again(strike.fault_ms, strike.after_ms, SERVING_DEADLINE_S)
        self.recorder.mark(
            "failover" if strike.planned or strike.leader_ms > strike.fault_ms else "kill",
            int(strike.fault_ms),
            until=int(wall_ms()),
            planned=strike.planned or not strike.disturbs,
        )
        one = Round(strike, again)
        self.rounds.append(one)
        if again is None:
            logs = "\n".join(f"node {n}: {b.log_tail()}" for n, b in self.trio.nodes.items())
            raise DrillError(f"the cluster did not serve within {SERVING_DEADLINE_S:.0f} s\n{logs}")
        return one

    @asynccontextmanager
    async def undisturbed(self, what: str, leader: int) -> AsyncIterator[Round]:
        """Record a fault that need not change the leader.

        If the leader changes nevertheless, the round is judged as a failover.
        """
        logs = LogMark(self.trio.nodes)
        fault_ms = wall_ms()
        strike = Strike(what, leader, fault_ms, fault_ms, fault_ms, disturbs=False)
        one = Round(strike)
        self.rounds.append(one)
        try:
            yield one
        finally:
            ended_ms = wall_ms()
            if logs.entries(LEADS):
                strike.disturbs, strike.leader_ms = True, ended_ms
                one.note = "the leader changed"
            self.recorder.mark(
                "failover", int(fault_ms), until=int(ended_ms), planned=not strike.disturbs
            )

    async def all_back(self, one: Round) -> None:
        """Start the nodes that are down, and wait until all followers have caught up."""
        down = [node for node in NODES if not self.trio.nodes[node].running]
        for node in down:
            await self.trio.start(node)
        leader = await self.trio.leader()
        for node in NODES:
            if node != leader:
                one.catch_up_s = max(one.catch_up_s, await self.trio.caught_up(node))


Fault = Callable[[Stage], Awaitable[None]]
