"""Elections: three nodes over real UDP on loopback, in one event loop.

Method: a relay before each node cuts ways and keeps what passes (`cluster.py`). Waits have a
generous end; what is asserted are facts, not seconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from delaylog.replication.errors import ClusterError, TermFileDamagedError
from delaylog.replication.oracle import LeaderOracle
from delaylog.replication.raftos_oracle.oracle import VOTE_NAME, RaftosOracle
from delaylog.replication.raftos_oracle.settings import LogState
from delaylog.replication.watermark import EpochTick
from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.replication.raftos_oracle.cluster import Cluster, settings

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("make_loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
async def test_one_is_elected_and_all_know_it(cluster: Cluster, make_loop: Any) -> None:
    oracles: list[LeaderOracle] = [cluster.make(node) for node in cluster.nodes]
    assert cluster.views() == {None}
    for oracle in oracles:
        await oracle.start()
    leader = await cluster.elected()
    assert cluster.leaders() == [leader]
    assert len({made.term for made in cluster.oracles.values()}) == 1


@pytest.mark.parametrize("size", [5])
async def test_five_elect_without_two(cluster: Cluster) -> None:
    await cluster.start(1, 3)
    await asyncio.sleep(0.7)
    assert cluster.views() == {None}, "two of five are no majority"
    await cluster.start(4)
    assert await cluster.elected() in (1, 3, 4)


async def test_a_leader_that_is_cut_off_is_replaced_and_steps_down(cluster: Cluster) -> None:
    changes: list[int] = []
    await cluster.start(changed=lambda: changes.append(1))
    old = await cluster.elected()
    assert changes, "the host was told"
    term = cluster.oracles[old].term
    cluster.isolate(old)
    await cluster.elected(old)
    await cluster.until(lambda: not cluster.oracles[old].suggests(cluster.now_ms))
    assert cluster.oracles[old].leader(cluster.now_ms) is None
    cluster.cuts.clear()
    await cluster.elected()
    assert cluster.oracles[old].term > term


async def test_a_follower_that_is_cut_off_raises_no_term(cluster: Cluster) -> None:
    await cluster.start()
    leader = await cluster.elected()
    lost = (leader + 1) % 3
    term = cluster.oracles[lost].term
    cluster.isolate(lost)
    await cluster.until(lambda: cluster.oracles[lost].leader(cluster.now_ms) is None)
    await asyncio.sleep(1)  # two more tries at least
    assert cluster.oracles[lost].term == term
    highest = max(oracle.term for oracle in cluster.oracles.values())
    cluster.cuts.clear()
    await cluster.elected()
    assert {oracle.term for oracle in cluster.oracles.values()} == {highest}


async def test_a_restart_keeps_term_and_vote(cluster: Cluster) -> None:
    await cluster.start()
    leader = await cluster.elected()
    for node in cluster.nodes:
        if node != leader:
            path = cluster.folder_of(node) / VOTE_NAME
            await cluster.oracles[node].stop()
            kept = path.read_bytes()
            await cluster.start(node)
            assert path.read_bytes() == kept
    await cluster.elected()
    highest = max(oracle.term for oracle in cluster.oracles.values())
    for oracle in cluster.oracles.values():
        await oracle.stop()
        assert oracle.term == 0
    await cluster.start()
    await cluster.elected()
    assert min(oracle.term for oracle in cluster.oracles.values()) > highest


@pytest.mark.parametrize("damage", [b"", b"garbage", bytes(32), None], ids=repr)
async def test_a_damaged_vote_is_not_believed(cluster: Cluster, damage: bytes | None) -> None:
    await cluster.start()
    await cluster.elected()
    await cluster.oracles[0].stop()
    path = cluster.folder_of(0) / VOTE_NAME
    path.write_bytes(path.read_bytes()[:31] if damage is None else damage)
    with pytest.raises(TermFileDamagedError, match=str(path)):
        await cluster.start(0)
    assert cluster.oracles[0].leader(0) is None
    path.unlink()
    await cluster.start(0)
    await cluster.elected()


async def test_transfer(cluster: Cluster) -> None:
    await cluster.start()
    for _ in range(3):
        leader = await cluster.elected()
        target = (leader + 1) % 3
        term = cluster.oracles[leader].term
        cluster.oracles[leader].transfer(target, cluster.now_ms)
        await cluster.until(lambda t=target: cluster.views() == {t})
        assert cluster.oracles[leader].term > term
    with pytest.raises(ClusterError, match="node 7"):
        cluster.oracles[0].transfer(7, cluster.now_ms)


async def test_a_transfer_to_nobody_ends(cluster: Cluster) -> None:
    """The target is cut off until the deadline has passed: it is not made to lead afterwards."""
    await cluster.start()
    leader = await cluster.elected()
    lost, other = (leader + 1) % 3, (leader + 2) % 3
    term = cluster.oracles[lost].term
    cluster.isolate(lost)
    cluster.oracles[other].transfer(lost, cluster.now_ms)  # a follower's word is nothing
    cluster.oracles[leader].transfer(lost, cluster.now_ms)
    await asyncio.sleep(1.1)
    assert cluster.oracles[lost].term == term
    highest = max(oracle.term for oracle in cluster.oracles.values())
    cluster.cuts.clear()
    await cluster.elected()
    assert {oracle.term for oracle in cluster.oracles.values()} == {highest}


async def test_who_resigns_stays_out(cluster: Cluster) -> None:
    await cluster.start()
    old = await cluster.elected()
    until_ms = cluster.now_ms + 1_500
    cluster.oracles[old].resign(cluster.now_ms, until_ms)
    assert not cluster.oracles[old].suggests(cluster.now_ms)
    new = await cluster.elected()
    assert new != old
    if cluster.now_ms < until_ms - 300:
        cluster.oracles[new].transfer(old, cluster.now_ms)
        await asyncio.sleep(0.2)
        assert old not in cluster.leaders(), "not even when it is asked to"
    third = 3 - old - new
    cluster.isolate(new)
    if cluster.now_ms < until_ms - 200:
        await cluster.until(lambda: cluster.oracles[third].suggests(cluster.now_ms))
    await cluster.elected(new)


async def test_the_only_two_left_wait_for_who_is_out(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    until_ms = cluster.now_ms + 700
    for node in (0, 1):
        cluster.oracles[node].resign(cluster.now_ms, until_ms)
    await asyncio.sleep(0.6)
    views = cluster.views()
    assert views == {None} or cluster.now_ms >= until_ms
    await cluster.elected()


async def test_the_tick_comes_with_heartbeats(cluster: Cluster) -> None:
    taken: dict[int, list[EpochTick]] = {node: [] for node in cluster.nodes}
    for node in cluster.nodes:
        tick = EpochTick(7 << 16 | node, 100, 3, 1 << 40, -5)
        own = settings(tick=lambda t=tick: t, accept_tick=taken[node].append)
        await cluster.make(node, own).start()
    leader = await cluster.elected()
    followers = [node for node in cluster.nodes if node != leader]
    await cluster.until(lambda: all(len(taken[node]) > 2 for node in followers))
    sent = EpochTick(7 << 16 | leader, 100, 3, 1 << 40, -5)
    assert all(set(taken[node]) == {sent} for node in followers)
    assert taken[leader] == []


async def test_the_most_complete_log_is_preferred_and_a_learner_never_leads(
    cluster: Cluster,
) -> None:
    await cluster.start(0, log_state=lambda: LogState(5, 10))
    await cluster.start(2, log_state=lambda: LogState(5, 11))
    assert await cluster.elected() == 2, "each of the two needs the other"
    await cluster.start(1, log_state=lambda: None)
    cluster.isolate(2)
    assert await cluster.elected(2) == 0, "a preference only, and the learner votes"


async def test_a_stopped_process_does_not_lead_on_old_answers(cluster: Cluster) -> None:
    """The loop stands still for longer than a leader may go unheard, its mail box full."""
    await cluster.start()
    leader = await cluster.elected()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 0.3
    while loop.time() < until_s:
        pass
    assert not cluster.oracles[leader].suggests(cluster.now_ms)
    assert cluster.oracles[leader].leader(cluster.now_ms) is None
    await cluster.elected()


class SickDisk(OsFileSystem):
    """Fails while it has an error."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def rename(self, source: str, target: str) -> None:
        if self.error is not None:
            raise self.error
        super().rename(source, target)


async def test_a_full_disk_means_no_election_and_no_end(cluster: Cluster) -> None:
    cluster.fs = disk = SickDisk(DiskFullError("full"))
    await cluster.start()
    await cluster.until(lambda: cluster.refused().get("disk_full", 0) > 2)
    assert cluster.views() == {None}
    assert {oracle.term for oracle in cluster.oracles.values()} == {0}
    disk.error = None
    await cluster.elected()


async def test_a_failed_disk_ends_the_part_of_the_node(cluster: Cluster) -> None:
    cluster.fs = disk = SickDisk(DiskFailedError("gone"))
    failures: list[Exception] = []
    await cluster.start(failed=failures.append)
    await cluster.until(lambda: bool(failures))
    failed = [oracle for oracle in cluster.oracles.values() if oracle.failure is not None]
    assert {id(oracle.failure) for oracle in failed} == {id(disk.error)}
    assert all(not oracle.suggests(cluster.now_ms) for oracle in failed)


async def test_an_address_in_use(cluster: Cluster) -> None:
    await cluster.start(0)
    cluster.listens[1] = cluster.listens[0]
    with pytest.raises(ClusterError, match=r"UDP 127\.0\.0\.1:\d+ cannot be used"):
        await cluster.start(1)
    await cluster.oracles[1].stop()


def test_before_and_after_it_runs(tmp_path: Path) -> None:
    members = {node: ("127.0.0.1", 7_001 + node) for node in range(3)}
    oracle = RaftosOracle(OsFileSystem(), str(tmp_path), 0, members, settings())
    oracle.resign(0, 1)
    oracle.transfer(1, 0)
    assert (oracle.suggests(0), oracle.leader(0), oracle.failure) == (False, None, None)
    asyncio.run(oracle.stop())


async def test_two_starts_at_once_are_a_mistake(cluster: Cluster) -> None:
    await cluster.start(0)
    with pytest.raises(AssertionError):
        await cluster.oracles[0].start()
