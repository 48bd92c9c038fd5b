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
    done = 0
    for _ in range(6):
        leader = await cluster.elected()
        target = (leader + 1) % 3
        term = cluster.oracles[leader].term
        cluster.oracles[leader].transfer(target, cluster.now_ms)
        await cluster.until(
            lambda t=term: {made.term > t for made in cluster.oracles.values()} == {True}
        )
        # A machine that stalls may elect the third one just then.
        done += await cluster.elected() == target
    assert done >= 5
    with pytest.raises(ClusterError, match="node 7"):
        cluster.oracles[0].transfer(7, cluster.now_ms)


async def test_two_nodes_that_resigned_wait_until_their_time_is_over(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    until_ms = cluster.now_ms + 700
    for node in (0, 1):
        cluster.oracles[node].resign(cluster.now_ms, until_ms)
    await asyncio.sleep(0.6)
    views = cluster.views()
    assert views == {None} or cluster.now_ms >= until_ms
    await cluster.elected()


async def test_a_stopped_process_does_not_lead_on_old_answers(cluster: Cluster) -> None:
    """The loop is blocked for longer than a leader may be silent, with messages waiting."""
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
