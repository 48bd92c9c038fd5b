"""A member as a process runs it, but for sockets and raftos: made, crashed and made again.

Everything from the engine to replication is the real thing, put together as `place.py` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.cluster.cluster_node import ClusterNode
from delaylog.broker.cluster.config import ClusterConfig, ClusterSecret, Member, cluster_id_of
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.leading.gate import FOLLOWED_MS
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_files import open_member
from delaylog.broker.cluster.members.operator_calls import OperatorCalls
from delaylog.broker.engine.engine import Engine, Membership, Setup
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.machine import RealMachine
from delaylog.broker.verify import verify_folder
from delaylog.replication.leader import Acks
from delaylog.storage.layout import INDEX_ENTRY, STATE_ENTRY
from tests.broker.cluster.real.disks import DiskCrashed, ThreadedDisk
from tests.broker.cluster.real.network import MemoryTransport, Network

FOLDER = "data"
LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
CONSTANTS = {
    "storage.hours.tails.TAIL_BYTES_MAX": 24 << 10,
    "storage.hours.hour_flusher.STATE_BYTES_MAX": 12 << 10,
    "storage.log.physical_log.SEGMENT_BYTES_MAX": 96 << 10,
    "broker.engine.upkeep.housekeeping.TAIL_BYTES_HARD_MAX": 1 << 20,
    "broker.engine.upkeep.housekeeping.STATE_BYTES_HARD_MAX": 4 << 20,
    "broker.engine.upkeep.checkpoints.CHECKPOINT_BYTES": 48 << 10,
    "broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 900,
    "broker.engine.upkeep.checkpoints.IDLE_MS": 250,
    "broker.engine.upkeep.checkpoints.IDLE_BYTES": 1,
    "broker.engine.state.HOT_BYTES_MAX": 0,
}
"""So small that everything happens all the time."""


def cluster(node: int, size: int) -> ClusterConfig:
    members = tuple(
        Member(at, f"n{at}", ("127.0.0.1", 1 + at), ("127.0.0.1", 1 + at), f"http://h:{1 + at}")
        for at in range(size)
    )
    secret = ClusterSecret((b"s" * 32,))
    return ClusterConfig("c", cluster_id_of("c"), node, members, Acks.QUORUM, None, secret)


class WildOracle:
    """Suggests whom the test says, to each node by itself."""

    def __init__(self, said: Callable[[], bool], transferred: Callable[[int], None]) -> None:
        self._said, self._transferred = said, transferred
        self._out_ms = 0
        self.failure: Exception | None = None
        self.refused: dict[str, int] = {}
        self.elections = "peers"
        self.datagram_ages_ms: dict[int, int | None] = {}

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def look(self, now_ms: int) -> None:
        pass

    def hear(self, leader: int, now_ms: int) -> None:
        pass

    def hear_deposed(self, leader: int, now_ms: int) -> None:
        pass

    def stretch(self, now_ms: int) -> float:
        return 1.0

    def silence_ms(self, now_ms: int) -> float:
        return FOLLOWED_MS

    def suggests(self, now_ms: int) -> bool:
        return now_ms >= self._out_ms and self._said()

    def leader(self, now_ms: int) -> int | None:
        return None

    def resign(self, now_ms: int, until_ms: int) -> None:
        self._out_ms = until_ms

    def transfer(self, target: int, now_ms: int) -> None:
        self._transferred(target)


class SeededMachine(RealMachine):
    """A machine with one generator of random numbers, which the test has seeded."""

    def __init__(self, random: Random) -> None:
        self.random = lambda: random  # type: ignore[method-assign, assignment]


class Life:
    """One node from a start to its end."""

    def __init__(
        self,
        config: ClusterConfig,
        disk: ThreadedDisk,
        network: Network,
        oracle: WildOracle,
        *,
        seed: int,
        on_end: Callable[[Life, BaseException], None],
        needed: Callable[[], int],
        skew_ms: int = 0,
    ) -> None:
        """Raises DiskCrashed if the disk is to fail so early."""
        import time

        self.disk, self.number, self.over = disk, config.node, False
        self.stopping = False
        self._needed = needed
        self._on_end = on_end
        clock = BrokerClock(wall=lambda: time.time() + skew_ms / 1000)
        random = Random(seed)
        files = open_member(
            disk,
            FOLDER,
            config,
            incarnation=random.randrange(1, 1 << 63),
        )
        self.member = member = ClusterMember(
            config,
            files,
            new_cluster=True,
            on_fatal=self._fatal,
            machine=SeededMachine(random),
            make_transport=lambda place, host, _: MemoryTransport(network, place, host),
        )
        membership = Membership(
            files.physical, files.slots, member.committed, self._drop_log, member.may_append
        )
        self._needed = needed

        def make_engine(loaded: LoadedKeyspace | None = None) -> Engine:
            return Engine(
                disk,
                FOLDER,
                Setup(random=random, limits=LIMITS),
                now_ms=clock.now_ms(),
                member=membership,
                loaded=loaded,
            )

        self.node = ServingNode(make_engine(), clock, self._fatal, machine=member.machine)
        clock.on_jump = self.node.clock_jumped
        succession = Succession(self.node, make_engine, member.committed, self._fatal)
        # No folder is so far behind here that it has to be copied.
        copies = Copies(disk, FOLDER, member, self.node, succession, None)
        member.attach(self.node, oracle, succession, copies, OperatorCalls(member))
        self.place = ClusterNode(self.node, member)
        self.files = files

    def _drop_log(self, position: int) -> int:
        return self.member.drop_log(min(position, self._needed()))

    def _fatal(self, error: BaseException) -> None:
        if not self.over:
            self._on_end(self, error)

    async def start(self) -> None:
        self.node.start()
        await self.place.start()

    @property
    def leading(self) -> bool:
        return not self.over and self.member.leading

    def crash(self) -> None:
        """Gone at once. What still runs finds the disk off; nothing of it reaches anybody."""
        self.over = True
        self.disk.off()
        member, node = self.member, self.node
        member.transport.off()  # type: ignore[attr-defined]
        member.stopping = node._stopping = True
        member.cancel_timers()
        node.releases.cancel()
        if member._succession._task is not None:
            member._succession._task.cancel()
        if member._succession._looking is not None:
            member._succession._looking.cancel()
        node.background.refuse()
        for work in node.background._tasks:
            work.cancel()
        node.background._io.shutdown(wait=True)
        # What was about to end in an orderly way goes on until it asks for the next job.
        node.background._io = _NoThread()  # type: ignore[assignment]
        if node.log_commits._thread._thread.is_alive():
            node.log_commits.stop()

    async def stop(self) -> None:
        """As SIGTERM does it, once."""
        self.stopping = True
        await self.place.leave()
        self.node.waiters.close()
        await self.member.stop()
        await self.node.stop()
        self.files.close()
        self.over = True


class _NoThread:
    """What a machine that is off has for jobs."""

    def submit(self, *_: object) -> None:
        raise DiskCrashed

    def shutdown(self, *, wait: bool = True) -> None:
        pass


def lose_ids(disk: ThreadedDisk) -> None:
    if disk.exists(f"{FOLDER}/ids"):
        disk.remove_tree(f"{FOLDER}/ids")


def damage(disk: ThreadedDisk) -> list[str]:
    """What `delaylog verify` finds in a folder."""
    work = verify_folder(disk, FOLDER)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return [f"{one.path} at {one.position}: {one.what}" for one in done.value.damage]


async def at_rest(lives: list[Life]) -> None:
    """Wait until none of them has work under way, as a checkpoint: `contents` would wait for that
    in the very turn of the loop that it needs.
    """
    while busy := [life.node.background for life in lives if life.node.background._tasks]:
        for background in busy:
            await background.finished()


Contents = tuple[bytes, bytes, list[bytes]]
"""Rows and records of an hour, and the states of every group."""


def contents(life: Life) -> dict[int, Contents]:
    """Of each hour."""
    engine: Any = life.node.engine
    hours = engine.state.hours
    engine.run_inline(hours.border.bring_near(max(hours.counts, default=0)))
    engine.run_inline(engine.housekeeping.flush_work())
    engine.run_inline(engine.housekeeping.states_work())
    out = {}
    groups = sorted({g for t in engine.state.by_number.values() for g in t.groups})
    for hour, counts in engine.state.hours.counts.items():
        if not counts.rows:
            continue
        folder = engine.state.hours.folders.hour(hour)
        assert folder.row_count == counts.rows
        rows = b"".join(part.tobytes() for part in folder.scan_rows())
        log = life.disk.content(f"{folder.folder}/delay.log")
        index = np.arange(1, counts.rows + 1)
        states = [folder.states(group).get(index).tobytes() for group in groups]
        out[hour] = (rows, log, states)
    return out


def unlike(one: Contents, other: Contents) -> list[tuple[int, Any, Any]]:
    """(number, row or state here, the same there) of those that differ in an hour."""
    pairs = [(one[0], other[0], INDEX_ENTRY)]
    pairs += [(*pair, STATE_ENTRY) for pair in zip(one[2], other[2], strict=True)]
    out = []
    for here, there, layout in pairs:
        both = [np.frombuffer(each, layout) for each in (here, there)]
        size = min(map(len, both))
        at = np.flatnonzero(both[0][:size] != both[1][:size]).tolist()
        out += [(n + 1, both[0][n].item(), both[1][n].item()) for n in at[:5]]
    return out


async def until(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it came to be in time."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 (tasks change it)
                await asyncio.sleep(0.005)
    except TimeoutError:
        return False
    return True


__all__ = [
    "DiskCrashed",
    "Life",
    "WildOracle",
    "at_rest",
    "cluster",
    "contents",
    "damage",
    "unlike",
    "until",
]
