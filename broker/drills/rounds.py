"""What a round of a drill was, and the stage that faults act on.

A fault is a coroutine that is given the stage: it strikes, says when and at whom (`Strike`), waits
until the cluster serves again, and leaves all three nodes running and caught up. Judging comes
later, when everything has been seen.
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
from delaylog.broker.drills.node_log import LEADS, LogMark
from delaylog.broker.drills.timeline import Again, wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.broker.history import HistoryRecorder

SERVING_DEADLINE_S: Final = 30.0
"""Beyond it the cluster counts as dead; how long it took is reported, not judged."""
NOT_LOOKED_FOR: Final = (-1.0, -1.0)
CALM_S: Final = (0.15, 0.45)
"""Between rounds, so that the fault meets a different moment each time."""


@dataclass(slots=True)
class Strike:
    """One fault."""

    what: str
    """The case, where a drill has several."""
    node: int
    """Who led."""
    fault_ms: float
    after_ms: float
    """Calls that began later were not answered by what was before the fault."""
    leader_ms: float
    """Until then the old leader may have handed something out."""
    planned: bool = False
    disturbs: bool = True
    """Whether the leader changes; otherwise nothing may be repeated either."""


@dataclass(slots=True)
class Round:
    """What became of it."""

    strike: Strike
    again: Again | None = None
    silence_ms: tuple[float, float] = NOT_LOOKED_FOR
    """The longest one of sends and of deliveries around it."""
    drift: int | None = None
    """Of a planned one: slots between the tick that was handed over and the one gone on from."""
    catch_up_s: float = 0.0
    duplicates: int = 0
    allowed: int = 0
    """What was handed out in the last 50 ms before."""
    farthest_ms: int = 0
    """How long before the last hand-out the farthest repeated one was made."""
    note: str = ""


@dataclass
class Stage:
    """What a fault may touch."""

    trio: Trio
    load: Load
    recorder: HistoryRecorder
    random: Random
    rounds: list[Round] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What a fault saw that may not be."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    async def calm(self) -> None:
        """Let the load run for a moment; raises if a client or a node has ended."""
        await asyncio.sleep(self.random.uniform(*CALM_S))
        self.load.check()
        self.trio.check()

    async def serving_again(self, strike: Strike) -> Round:
        """Wait for it and note the round. Raises DrillError beyond the deadline."""
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
            raise DrillError(f"not serving within {SERVING_DEADLINE_S:.0f} s\n{logs}")
        return one

    @asynccontextmanager
    async def undisturbed(self, what: str, leader: int) -> AsyncIterator[Round]:
        """A fault that should leave the leader where it is; if it does not, that is allowed.

        What such a round tells is the longest silence meanwhile.
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
            one.silence_ms = self.load.timeline.longest_silence_ms(fault_ms, ended_ms)

    async def all_back(self, one: Round) -> None:
        """Start whoever is down, and wait until all three have applied the same."""
        down = [node for node in NODES if not self.trio.nodes[node].running]
        for node in down:
            await self.trio.start(node)
        leader = await self.trio.leader()
        for node in NODES:
            if node != leader:
                one.catch_up_s = max(one.catch_up_s, await self.trio.caught_up(node))


Fault = Callable[[Stage], Awaitable[None]]
