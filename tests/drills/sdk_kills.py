"""The SDK under kills and failovers: nothing lost, nothing sent twice, nothing early.

    python tests/drills/sdk_kills.py {broker,shards,cluster,workers} [--rounds 20] [--seed S]
                                     [--plant FAULT] [--keep]

`broker`: one broker, killed with -9 and started again. `shards`: two, of which one is killed at a
time. `cluster`: three nodes whose leader is killed, or hands over. Meanwhile a program sends,
receives and handles by the public SDK only; between it and brokers that are killed, a wire loses
some of the answers. At the end nothing may be open, the history is judged by the checker, and each
body has to be there exactly once. `workers`: worker processes are killed (`sdk_worker_kills.py`).
`--plant` makes the client or the workers wrong in a way that has to be found.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Final

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from drill import Drill, counted, parser_of, run_drill
from sdk_faults import FAULTS, SOUND
from sdk_history import SdkHistory, now_ms
from sdk_load import SdkLoad, Ways
from sdk_wire import LossyWire
from sdk_worker_kills import PLANTS, SdkWorkerKills

from delaylog.broker.drills.trio import NODES, Trio
from delaylog.client import Shard
from delaylog.client.child_broker import ChildBroker

CALM_S: Final = (0.2, 0.8)
SENT_A_ROUND: Final = 100
"""Sends acknowledged between two faults at least: on a busy machine that takes longer."""
DOWN_S: Final = (0.0, 0.4)
LOST_SHARE: Final = 0.04
HASTY_LOST_SHARE: Final = 0.2
LOST_SENDS_MIN: Final = 5
HANDOVER_EVERY: Final = 3


class SdkKills(Drill):
    """Rounds of faults under a load, in one folder."""

    rules = "ABCFGJ"
    # Nothing is cancelled, rescheduled or sent under an id that was used: D, E and H are tried by
    # other drills.

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self.calls = SdkHistory(self.history)
        self.notes: list[str] = []
        self.caught = 0
        self._load: SdkLoad | None = None

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> Ways:
        """Start what serves."""

    @abstractmethod
    async def strike(self) -> None:
        """One fault, and back."""

    @property
    def has_tried(self) -> bool:
        """Whether enough came to pass for a wrong client to be found; until then it goes on."""
        return True

    async def run(self) -> None:
        """All rounds, then the drain."""
        with self.calls:
            async with AsyncExitStack() as stack:
                load = self._load = SdkLoad(self.calls, self.options.seed, await self.open(stack))
                try:
                    await load.begin()
                    for _ in range(self.options.rounds):
                        await load.calm(SENT_A_ROUND, self.random.uniform(*CALM_S))
                        self.caught += self.calls.under_way
                        await self.strike()
                    await load.calm(SENT_A_ROUND, 0.0)
                    while not self.has_tried:
                        await load.calm(1, 0.0)
                    await load.drain()
                    await load.read_back()
                finally:
                    await load.close()

    def figures(self) -> Sequence[str]:
        """Bodies, retries and handlers. A drill whose client was never in doubt tries nothing."""
        assert self._load is not None
        wrong, summary = self.calls.judge_bodies()
        self.wrong += [*wrong, *self.calls.surprises]
        if not self.caught:
            self.wrong.append("no send was ever under way when a fault came")
        if not all(self._load.handled[how] for how in ("tasks", "threads", "by hand")):
            self.wrong.append("some consumers had nothing to do")
        return [
            summary,
            f"{self.caught} sends were under way at a fault; "
            f"repeated: {counted(self._load.telling.retries)}; "
            f"given up: {counted(self.calls.given_up)}",
            "handled " + counted(self._load.handled),
            *self.notes,
        ]

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self.options.rounds} rounds, {took_s / self.options.rounds:.1f} s each,"


class KilledBrokers(SdkKills):
    """One broker, or several shards; one at a time is killed with -9 and started again."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        brokers = 2 if options.course == "shards" else 1
        self._brokers = [ChildBroker(folder / f"data-{n}") for n in range(brokers)]
        self._wires: list[LossyWire] = []

    async def open(self, stack: AsyncExitStack) -> Ways:
        """The brokers, each behind two wires beside the direct way."""
        ways = Ways([], [], [])
        for n, broker in enumerate(self._brokers):
            await stack.enter_async_context(broker)
            ways.direct.append(Shard(broker.url, name=f"shard-{n}"))
            for shards, share in ((ways.behind, LOST_SHARE), (ways.hasty, HASTY_LOST_SHARE)):
                wire = LossyWire(
                    broker.port, share=share, seed=self.options.seed + len(self._wires)
                )
                self._wires.append(await stack.enter_async_context(wire))
                shards.append(Shard(wire.url, name=f"shard-{n}"))
        return ways

    async def strike(self) -> None:
        """SIGKILL, and some time later a start on the same folder."""
        broker = self.random.choice(self._brokers)
        if not broker.running:
            self.calls.surprise(f"a broker ended by itself\n{broker.log_tail()}")
        killed_ms = now_ms()
        await broker.kill()
        self.calls.mark("kill", killed_ms, until=now_ms())
        await asyncio.sleep(self.random.uniform(*DOWN_S))
        await broker.start()

    @property
    def has_tried(self) -> bool:
        """Whether each wire has lost the answers of some sends that were carried out."""
        return all(wire.lost_sends >= LOST_SENDS_MIN for wire in self._wires)

    async def run(self) -> None:
        """As any; what the wires lost is told."""
        await super().run()
        lost, lost_sends = (
            sum(getattr(wire, name) for wire in self._wires) for name in ("lost", "lost_sends")
        )
        self.notes.append(f"{lost} answers were lost on the wire, {lost_sends} of them to sends")


class FailingLeader(SdkKills):
    """Three nodes; the leader is killed, or asked to hand over."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self._trio = Trio(folder)
        self._handovers = self._strikes = 0

    async def open(self, stack: AsyncExitStack) -> Ways:
        """One shard of three members; answers are lost by failovers alone."""
        await stack.enter_async_context(self._trio)
        await self._trio.found()
        urls = [self._trio.urls[node] for node in NODES]
        shards = [Shard(urls[0], name="trio", members=tuple(urls[1:]))]
        return Ways(shards, shards, shards)

    async def strike(self) -> None:
        """Another node comes to lead, and all three have applied the same in the end."""
        self._trio.check()
        leader, others = await self._trio.others()
        struck_ms = now_ms()
        self._strikes += 1
        if self._strikes % HANDOVER_EVERY == 2:
            await self._trio.hand_over(leader, self.random.choice(others))
            await self._trio.leader(others)
            self.calls.mark("failover", struck_ms, until=now_ms(), planned=True)
            self._handovers += 1
            return
        await self._trio.nodes[leader].kill()
        await self._trio.leader(others)
        self.calls.mark("kill", struck_ms, until=now_ms())
        await asyncio.sleep(self.random.uniform(*DOWN_S))
        await self._trio.start(leader)
        await self._trio.caught_up(leader)

    async def run(self) -> None:
        """As any; how many faults were hand-overs is told."""
        await super().run()
        self.notes.append(f"{self._handovers} of {self._strikes} faults were hand-overs")


COURSES: Final[dict[str, type[Drill]]] = {
    "broker": KilledBrokers,
    "shards": KilledBrokers,
    "cluster": FailingLeader,
    "workers": SdkWorkerKills,
}


def main() -> None:
    """Parse and run."""
    parser = parser_of(__doc__)
    parser.add_argument("course", choices=COURSES)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--plant", choices=sorted({*FAULTS, *PLANTS}), default=SOUND)
    options = parser.parse_args()
    with FAULTS.get(options.plant, nullcontext)():
        name, drill = f"sdk-{options.course}", COURSES[options.course]
        holds = run_drill(name, lambda folder: drill(folder, options), options)
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
