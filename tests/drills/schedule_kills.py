"""Schedules under kill -9: no instant is skipped, and none has two messages.

    python tests/drills/schedule_kills.py broker|cluster [--rounds 20] [--schedules 200] [--seed S]
                                          [--plant none|skip|double|alien] [--keep]

Hundreds of schedules of one to five seconds fire, are changed, and overlap, while their broker, or
the leader of three nodes, is killed with SIGKILL at random moments and started again. Between
starts of the single broker its clock is stepped ahead and back, and its tzdata is exchanged: an
older release, a newer one in which a zone changes its clocks soon, the older, and the newer again,
before the zone does so. Nodes of the cluster change between two releases all the time. The history
of what clients saw is judged by rule K of `delaylog check` and those about leases. Exit status 0
means that it holds. `--plant` changes the history first, which K must find.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from drill import Drill, open_messages, parser_of, run_main
from recorded_calls import RecordedCalls, now_ms
from schedule_load import LEASE_MS, STEADY, STEP_MS, TOPIC, ScheduleLoad
from zone_releases import NEWER, OLDER, write_release, zone_file, zones_of

from delaylog.broker.drills.trio import Trio
from delaylog.broker.history import CheckReport, HistoryRecorder, check_files
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import check_timing
from delaylog.client import AsyncPlainClient
from delaylog.client.child_broker import BrokerStartError, ChildBroker

UP_S: Final = (0.2, 1.3)
START_KILL_SHARE: Final = 0.15
START_KILL_S_MAX: Final = 1.0
CHANGE_IN_MS: Final = 20_000
"""From the first start with the newer release to the change of the zone's clocks: long enough for a
start with the older release and another with the newer one."""
SPARE_MS: Final = 8_000
"""What a round takes on a busy machine: the older release must not lead when the zone changes."""
AHEAD_S: Final = 1_800
DRAIN_S: Final = 60.0


class Releases:
    """The folder that a broker takes tzdata from: a link to one of two releases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The zone's clocks show five past: an hour's half ends long after the drill.
        self._offset_s = (300 - int(time.time())) % 3_600
        folder.mkdir()
        write_release(folder / OLDER, OLDER, zone_file(self._offset_s))
        write_release(folder / NEWER, NEWER, zone_file(self._offset_s))

    def change_clocks(self, at_ms: int) -> None:
        """In the newer release the zone's clocks go half an hour ahead at this time."""
        later = [(at_ms // 1_000, self._offset_s + AHEAD_S)]
        write_release(self._folder / NEWER, NEWER, zone_file(self._offset_s, later))

    def path(self, version: str) -> Path:
        return self._folder / version

    def instants(self, members: Mapping[str, Any]) -> Callable[[int], int | None]:
        """Instants by the newer release, which is right for the whole drill."""
        zones = zones_of(self._folder / NEWER, NEWER)
        return partial(next_instant, check_timing(members, zones), zones=zones)


class Node:
    """What decides how one node starts: its release, and the offset of its clock."""

    def __init__(self, folder: Path, name: str, releases: Releases) -> None:
        self._link = folder / f"{name}.zones"
        self._clock = folder / f"{name}.clock"
        self._releases = releases
        self.use(OLDER)

    def use(self, version: str) -> None:
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(self._releases.path(version))

    def step(self, offset_ms: int) -> None:
        self._clock.write_text(str(offset_ms))

    @property
    def program(self) -> list[str]:
        module = "delaylog.broker.drills.faults.stepped_node"
        command = [sys.executable, "-P", "-m", module, str(self._clock)]
        return ["env", f"PYTHONPATH={self._link}", *command]


class ScheduleKills(Drill):
    """Rounds of kills, and what they wrote down."""

    rules = "BCJK"  # About deliveries of firings; the others are about sends.
    lease_ms = LEASE_MS

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self._rounds = options.rounds
        self._releases = Releases(folder / "releases")
        self._recorder = HistoryRecorder(self.history, client="schedule-kills")
        self._load = ScheduleLoad(options.seed, options.schedules)
        self._kills = 0

    async def run(self) -> None:
        """All rounds, then the drain."""
        with self._recorder:
            await self._all_rounds()

    unclear = frozenset[str]()

    @abstractmethod
    async def _all_rounds(self) -> None: ...

    def _calls(self, client: AsyncPlainClient) -> RecordedCalls:
        return RecordedCalls(client, self._recorder, self.wrong, self.counts, unclear=self.unclear)

    async def _loaded(self, calls: RecordedCalls) -> asyncio.Task[None]:
        """Begin the load, and let it run for a while."""
        load = asyncio.create_task(self._load.run(calls))
        await asyncio.wait([load], timeout=self.random.uniform(*UP_S))
        if load.done():
            await load
        return load

    async def _finish(self, calls: RecordedCalls) -> None:
        self._load.stopping = True
        await self._load.finish(calls)

        async def left() -> int:
            return open_messages((await calls.client.stats(TOPIC))["counts"])

        await self.drain(lambda: self._load.take(calls), left, DRAIN_S)
        self._recorder.mark("end", now_ms())

    def check(self) -> CheckReport:
        """By the instants of the newer release."""
        if self.options.plant != "none":
            plant(self.history, self.options.plant)
        checked = check_files([self.history], self.settings(), instants=self._releases.instants)
        if not checked.rules["K"].checked:
            self.wrong.append("rule K had nothing to check")
        return checked

    def figures(self) -> Sequence[str]:
        """Kills, schedules and firings."""
        return [
            f"{self._kills} kills, {len(self._load.names)} schedules, "
            f"{self._load.firings:,} deliveries"
        ]

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self._rounds} rounds, {took_s / self._rounds:.1f} s each,"


class BrokerDrill(ScheduleKills):
    """One broker on one folder, whose clock and tzdata change between its starts."""

    async def _all_rounds(self) -> None:
        self._node = Node(self.folder, "node", self._releases)
        self._broker = ChildBroker(self.folder / "data", program=self._node.program)
        third = max(self._rounds // 3, 1)
        change_ms = 0
        for round_ in range(self._rounds):
            if round_ == third:
                change_ms = now_ms() + CHANGE_IN_MS
                self._releases.change_clocks(change_ms)
            older = round_ < third or (round_ == third + 1 and now_ms() < change_ms - SPARE_MS)
            self._node.use(OLDER if older else NEWER)
            # Ahead in one round, back in the next: the broker's clock waits until it is then.
            stepped = round_ in (third + 2, third + 3)
            offset_ms = STEP_MS if round_ == third + 2 else 0
            await self._round(round_, offset_ms if stepped else None)
        await self._start(await self._spare_kill())
        async with AsyncPlainClient(self._broker.url, failover=timedelta(0)) as client:
            calls = self._calls(client)
            await self._load.look(calls)
            load = asyncio.create_task(self._load.run(calls))
            await asyncio.sleep(max(change_ms - now_ms(), 0) / 1_000 + 4)
            self._load.stopping = True
            await load
            await self._finish(calls)
            status = await self._broker.stop()
            if status != 0:
                self.wrong.append(f"SIGTERM ended it with status {status}")

    async def _round(self, round_: int, offset_ms: int | None) -> None:
        killed_ms = await self._spare_kill()
        if offset_ms is not None:
            began_ms = now_ms()
            self._node.step(offset_ms)
            self._recorder.mark("clock", began_ms, until=now_ms() + STEP_MS)
        await self._start(killed_ms)
        try:
            async with AsyncPlainClient(self._broker.url, failover=timedelta(0)) as client:
                calls = self._calls(client)
                if round_ == 0:
                    await self._load.make(calls)
                await self._load.look(calls)
                load = await self._loaded(calls)
                self._load.stopping = True
                if not self._broker.running:
                    self.wrong.append(f"it ended by itself\n{self._broker.log_tail()}")
                self._killed_ms = now_ms()
                await self._broker.kill()
                self._kills += 1
                await load
        finally:
            await self._broker.kill()

    _killed_ms = 0

    async def _spare_kill(self) -> int:
        """Sometimes kill it while it starts; returns when the outage began."""
        if self._killed_ms and self.random.random() < START_KILL_SHARE:
            starting = asyncio.create_task(self._broker.start())
            await asyncio.wait([starting], timeout=self.random.uniform(0.1, START_KILL_S_MAX))
            await self._broker.kill()
            with suppress(BrokerStartError):
                await starting
            await self._broker.kill()
            self._kills += 1
        return self._killed_ms

    async def _start(self, killed_ms: int) -> None:
        await self._broker.start()
        if killed_ms:
            self._recorder.mark("kill", killed_ms, until=now_ms())


class ClusterDrill(ScheduleKills):
    """Three nodes, of which the leader is killed; each start takes another release."""

    unclear = frozenset({"not_ready"})

    async def _all_rounds(self) -> None:
        nodes = {n: Node(self.folder, f"node-{n}", self._releases) for n in (1, 2, 3)}
        async with Trio(self.folder, program=lambda node: nodes[node].program) as trio:
            await trio.found()
            async with AsyncPlainClient(",".join(trio.urls.values())) as client:
                calls = self._calls(client)
                await self._load.make(calls)
                for _ in range(self._rounds):
                    load = await self._loaded(calls)
                    leader = await trio.leader()
                    killed_ms = now_ms()
                    await trio.nodes[leader].kill()
                    self._kills += 1
                    await trio.leader([node for node in trio.nodes if node != leader])
                    self._recorder.mark("failover", killed_ms, until=now_ms())
                    await asyncio.sleep(self.random.uniform(*UP_S))
                    nodes[leader].use(self.random.choice((OLDER, NEWER)))
                    await trio.start(leader)
                    await trio.all_vote()
                    self._load.stopping = True
                    await load
                await self._finish(calls)


def plant(history: Path, what: str) -> None:
    """Change a history as a broker would have that skips, doubles or invents an instant."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    acks = [
        (line, place)
        for line in lines
        for place, ok in enumerate(line.get("oks", ()))
        if line.get("op") == "ack" and ok and line["ids"][place].startswith(f"{STEADY}@")
    ]
    # The middle instant, not the middle ack: a held message is acked after later instants, and the
    # last instant may be one that the pause at the end took back, whose absence is no fault.
    acks.sort(key=lambda ack: int(ack[0]["ids"][ack[1]].rpartition("@")[2]))
    ack, place = acks[len(acks) // 2]
    victim = ack["ids"][place]
    again = {"t0": ack["t1"] + 1, "t1": ack["t1"] + 2, "op": "deliver", "ok": True, "id": victim}
    if what == "double":
        lines.append(again)
    elif what == "alien":
        name, _, instant = victim.rpartition("@")
        lines.append({**again, "id": f"{name}@{int(instant) - 1}"})
    else:
        text = history.read_text().replace(f'"{victim}"', '"elsewhere"')
        lines = [line for line in map(json.loads, text.splitlines()) if _without(line)]
    history.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _without(line: dict[str, Any]) -> bool:
    """Take the message `elsewhere` out of a line; False if nothing is left of it."""
    if line.get("id") == "elsewhere":
        return False
    if "elsewhere" not in line.get("ids", ()):
        return True
    place = line["ids"].index("elsewhere")
    for values in line.values():
        if isinstance(values, list):
            del values[place]
    return bool(line["ids"])


def make(folder: Path, options: argparse.Namespace) -> ScheduleKills:
    """The drill of a course."""
    return (BrokerDrill if options.course == "broker" else ClusterDrill)(folder, options)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("course", choices=("broker", "cluster"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--plant", choices=("none", "skip", "double", "alien"), default="none")
    run_main("schedule-kills", make, parser)
