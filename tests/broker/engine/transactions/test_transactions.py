"""Transactions on one engine: what is staged, decided and published, and what a restart keeps.

Purpose: nothing of a transaction is seen before its commit, every row once after it, whatever
happens in between: restarts, checkpoints, purges, drops, repeated calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest

from delaylog.broker.backup.copies import Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.engine.errors import (
    DiskFullRefusal,
    EngineError,
    GoneError,
    UnknownError,
)
from delaylog.broker.engine.jobs.job_table import JobSpec
from delaylog.broker.engine.jobs.jobs import begin_job
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.send.quotas import BeyondQuotaError, QuotaError
from delaylog.broker.engine.topics.commands import purge
from delaylog.broker.engine.topics.settings import Quota
from delaylog.broker.engine.transactions import commands, publisher, table
from delaylog.broker.engine.transactions.commands import PartName, Winner
from delaylog.broker.engine.transactions.table import (
    ENDED_KEPT_MAX,
    ENDED_KEPT_MS,
    TransactionTable,
)
from delaylog.broker.verify.physical_log import LogRange, verify_staged
from delaylog.broker.verify.report import Report
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import MessageState as S
from delaylog.storage.log.log_reader import segment_bases
from tests.broker.engine.host import batch_of
from tests.broker.engine.staging import Transactions
from tests.broker.verify.verifying import verify

HOUR = 3_600_000


def calls(host: Any) -> Transactions:
    return Transactions(host.engine)


def bodies(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def prepared(host: Any, parts: int = 3, rows: int = 20, **members: Any) -> None:
    """Transaction x, staged and committed: parts x rows numbered bodies."""
    txn = calls(host)
    txn.begin("x", host.now_ms)
    for part in range(parts):
        txn.stage("x", bodies(part * rows, rows), host.now_ms, part=part, **members)
    winners = [(part, 0, rows) for part in range(parts)]
    assert txn.commit("x", host.now_ms, *winners)
    host.sync()


def publish(host: Any) -> None:
    calls(host).publish(host.now_ms)
    host.turn()


def test_a_commit_counts_at_once(host: Any) -> None:
    """Rows on their way wait, in every group, also over a restart; none is counted twice."""
    host.put_group("g")
    prepared(host)
    for keep in (lambda: None, host.restart, host.checkpoint, host.restart):
        keep()
        assert [group.counts.living for group in host.topic.groups.values()] == [60, 60]
        calls(host).slices(host.now_ms, 1)
        assert [group.counts.living for group in host.topic.groups.values()] == [60, 60]
    publish(host)
    assert [group.counts.living for group in host.topic.groups.values()] == [60, 60]
    assert len(host.bodies()) == len(host.bodies(group="g")) == 60
    host.check_counts()


def test_due_times(host: Any) -> None:
    """Delays count from the commit; a past time is the commit's; none comes early."""
    txn, start = calls(host), host.now_ms
    txn.begin("x", start)
    txn.stage("x", [b"delay"], start, part=0, delay_ms=10_000)
    txn.stage("x", [b"at"], start, part=1, deliver_at_ms=start + 8_000)
    txn.stage("x", [b"past"], start, part=2, deliver_at_ms=start - 8_000)
    host.advance(5_000)
    assert txn.commit("x", host.now_ms, (0, 0, 1), (1, 0, 1), (2, 0, 1))
    host.advance(1_000)
    publish(host)
    assert [(m.body, m.deliver_at_ms - start) for m in host.receive()] == [(b"past", 5_000)]
    host.advance(1_999)
    assert host.receive() == []
    host.advance(1)
    assert [(m.body, m.deliver_at_ms - start) for m in host.receive()] == [(b"at", 8_000)]
    host.advance(6_999)
    assert host.receive() == []
    host.advance(1)
    assert [(m.body, m.deliver_at_ms - start) for m in host.receive()] == [(b"delay", 15_000)]


def test_after_days_away(host: Any) -> None:
    """What could not be published for long is due a minute before it is."""
    prepared(host, parts=1, rows=8)
    host.restart(pause_ms=3 * 24 * HOUR)
    publish(host)
    got = host.receive()
    assert sorted((m.body for m in got), key=int) == bodies(0, 8)
    assert {m.deliver_at_ms for m in got} == {host.now_ms - publisher.LATE_MS}
    host.check_counts()


def test_ids_are_merged_at_the_publication(host: Any) -> None:
    for merge, counted in (
        ("keep", (18, 2, 0, 0, 0)),
        ("replace", (18, 0, 2, 0, 0)),
        ("reject", (18, 0, 0, 2, 0)),
    ):
        host.topic_name = merge
        txn = calls(host)
        ids = [f"{merge}{k}" for k in range(19)]
        txn.begin(merge, host.now_ms)
        twice = [*ids, ids[0]]
        body = bodies(0, 20)
        txn.stage(merge, body, host.now_ms, topic=merge, ids=twice, merge=merge, delay_ms=HOUR)
        assert txn.commit(merge, host.now_ms, (0, 0, 20))
        host.send([b"first"], ids=[ids[3]], delay=HOUR)
        publish(host)
        assert txn.look(merge).counts == counted
        assert all(host.state_of(name) == S.WAITING for name in ids)
        assert host.topic.default.counts.living == 19
        host.restart()
        host.advance(HOUR)
        found = Counter(host.bodies())
        assert found[b"first"] == (merge != "replace")
        assert (b"19" in found) == (merge == "replace")
        assert len(found) == 19


def test_purge_between(host: Any) -> None:
    """A purge ends what was committed before it, published or not; nothing staged is touched."""
    prepared(host, delay_ms=HOUR)
    txn = calls(host)
    txn.begin("open", host.now_ms)
    txn.stage("open", [b"later"], host.now_ms)
    txn.slices(host.now_ms, 3)
    assert txn.table.published_rows == 15
    assert host.purge("default", force=False) == 60
    assert txn.commit("open", host.now_ms, (0, 0, 1))
    host.restart()
    publish(host)
    assert calls(host).look("x").counts == (15, 0, 0, 0, 45)
    assert host.topic.default.counts.living == 1
    host.advance(2 * HOUR)
    assert host.bodies() == [b"later"]
    counts = host.topic.default.counts
    assert (counts.living, counts.cancelled) == (1, 60)


def test_purge_of_one_group(host: Any) -> None:
    """The other group, and one that is made later, see what they should."""
    first = host.put_group("first")
    prepared(host)
    calls(host).slices(host.now_ms, 3)
    purge(host.engine.state, host.topic, [first], host.now_ms, force=False)
    host.put_group("late")
    publish(host)
    assert calls(host).look("x").counts == (60, 0, 0, 0, 0)
    for _ in range(2):
        living = {g.name: g.counts.living for g in host.topic.groups.values()}
        assert living == {"default": 60, "first": 0, "late": 0}
        host.recount()
        host.checkpoint()
        host.restart()
    assert host.bodies(group="first") == host.bodies(group="late") == []
    assert sorted(host.bodies(), key=int) == bodies(0, 60)
    host.drop_group("first")
    host.recount()


@pytest.mark.parametrize("committed", [True, False])
def test_a_topic_that_is_dropped(host: Any, committed: bool) -> None:
    """Its rows go with it; one of that name made later gets none of them."""
    txn = calls(host)
    if committed:
        prepared(host)
        txn.slices(host.now_ms, 1)
    else:
        txn.begin("x", host.now_ms)
        txn.stage("x", bodies(0, 60), host.now_ms)
    host.drop_topic()
    host.send([b"new"])
    if not committed:
        assert txn.commit("x", host.now_ms, (0, 0, 60))
    publish(host)
    assert txn.look("x").counts[4] == (55 if committed else 60)
    assert host.bodies() == [b"new"]
    host.restart()
    assert host.topic.default.counts.living == 1


def test_a_topic_with_staged_rows_is_in_use(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that would go by itself stays as long as rows are staged for it."""
    monkeypatch.setattr("delaylog.broker.engine.topics.idle.TOPIC_IDLE_MS", 1_000)
    host = open_host()
    txn = calls(host)
    txn.begin("x", host.now_ms)
    txn.stage("x", [b"a"], host.now_ms)
    for _ in range(3):
        host.advance(2_000)
        host.engine.retire_unused(host.now_ms)
    assert host.engine.topic("t") is not None
    txn.abort("x", host.now_ms)
    for _ in range(3):
        host.advance(2_000)
        host.engine.retire_unused(host.now_ms)
    assert host.engine.topic("t") is None


def test_time(open_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call about an open one gives it time, up to its greatest age; then it expires."""
    monkeypatch.setattr("delaylog.broker.engine.transactions.commands.TTL_MS", 1_000)
    monkeypatch.setattr("delaylog.broker.engine.transactions.commands.TRANSACTION_AGE_MS", 2_500)
    host = open_host()
    txn, start = calls(host), host.now_ms
    txn.begin("x", start)
    assert txn.look("x").expires_ms == start + 1_000
    host.advance(900)
    txn.stage("x", [b"a"], host.now_ms)
    host.advance(900)
    assert txn.begin("x", host.now_ms, ttl_ms=2_000) == "x"
    assert txn.look("x").expires_ms == start + 2_500
    host.restart()
    txn = calls(host)
    host.jump_ahead(HOUR)
    assert txn.look("x").expires_ms == start + 2_500 + HOUR
    host.advance(700)
    host.engine.retire_unused(host.now_ms)
    known = txn.look("x")
    assert (known.state, known.rows, known.discarded_rows) == ("expired", 1, 1)
    with pytest.raises(GoneError):
        txn.stage("x", [b"a"], host.now_ms, part=1)
    assert txn.begin("x", host.now_ms) == "x"
    host.set_back(HOUR)
    host.advance(ENDED_KEPT_MS - 10)
    host.engine.retire_unused(host.now_ms)
    assert txn.look("x").state == "expired"
    host.advance(1_000)
    host.engine.retire_unused(host.now_ms)
    with pytest.raises(UnknownError):
        txn.look("x")
    assert txn.begin("x", host.now_ms) == "x"
    assert txn.look("x").number == 2


def test_how_many_ended_ones_are_remembered(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ENDED_KEPT_MAX", 5)
    txn = calls(host)
    for number in range(8):
        txn.begin(f"x{number}", host.now_ms)
        txn.abort(f"x{number}", host.now_ms)
    for _ in range(2):
        kept = [name for name, _ in calls(host).table.newest_ended(9)]
        assert kept == ["x7", "x6", "x5", "x4", "x3"]
        assert calls(host).table.dropped == 3
        host.checkpoint()
        host.restart()


def ended(count: int) -> TransactionTable:
    found = TransactionTable()
    for k in range(1, count + 1):
        found.begin(k, f"transaction-{k}", ttl_ms=1_000, expires_ms=k + 1_000, leader_time_ms=k)
        found.end(k, "aborted", k)
    return found


def least_cost(act: Callable[[], Any]) -> float:
    took = []
    for _ in range(5):
        began = process_time()
        act()
        took.append(process_time() - began)
    return min(took)


def test_a_snapshot_of_as_many_as_are_kept_is_short() -> None:
    found = ended(ENDED_KEPT_MAX + 10)
    saved = found.snapshot(0)
    assert found.ended_count == len(saved["ended_ids"]) == ENDED_KEPT_MAX
    assert found.dropped == 10
    # It costs as much as so many short texts. A table in a linked order took thirty times as much.
    texts = least_cost(lambda: [str(k) for k in range(ENDED_KEPT_MAX)])
    assert least_cost(lambda: found.snapshot(0)) < 5 * texts


def test_quotas(open_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and parts of open ones, open ones, a topic's own quota, and the disk."""
    monkeypatch.setattr("delaylog.broker.engine.transactions.commands.STAGED_PARTS_MAX", 3)
    monkeypatch.setattr("delaylog.broker.engine.transactions.commands.OPEN_MAX", 2)
    host = open_host(limits=Limits(staged_bytes_max=400))
    txn, now = calls(host), host.now_ms
    txn.begin("x", now)
    txn.begin("y", now)

    def refused(call: Any) -> EngineError:
        end = host.engine.state.log.end_position
        with pytest.raises(EngineError) as caught:
            call()
        assert host.engine.state.log.end_position == end, "nothing was done"
        assert caught.value.code == "quota"
        assert caught.value.facts["retry_after_s"] > 0
        return caught.value

    refused(lambda: txn.begin("z", now))
    txn.stage("x", [b"a" * 200], now)
    refused(lambda: txn.stage("x", [b"a" * 200], now, part=1))
    txn.stage("x", [b""], now, part=1)
    txn.stage("y", [b""], now, topic="u")
    refused(lambda: txn.stage("x", [b""], now, part=2))
    assert not txn.stage("x", [b""], now, part=1), "a repeat is answered whatever there is"
    txn.abort("x", now)
    host.configure(quota=Quota(pending=2))
    with pytest.raises(BeyondQuotaError):
        txn.stage("y", [b"", b"", b""], now, part=1)
    txn.stage("y", [b"", b""], now, part=1)
    refused(lambda: txn.stage("y", [b""], now, part=2))
    txn.abort("y", now)
    assert not txn.table.has_rows_of(host.topic.number)


def test_a_full_disk(host: Any) -> None:
    """Parts need room for themselves twice; a commit for what it publishes."""
    state, now = host.engine.state, host.now_ms
    reserve = state.limits.disk_reserve_bytes
    txn = calls(host)
    txn.begin("x", now)
    name = PartName("", 0, 0, 0)
    content = commands.Content(("default", "t"), batch_of([b"a" * 1_000]))
    with pytest.raises(DiskFullRefusal):
        commands.stage(state, "x", name, content, now, free_bytes=reserve + 2_000)
    assert commands.stage(state, "x", name, content, now, free_bytes=reserve + 3_000)
    with pytest.raises(DiskFullRefusal):
        commands.commit(state, "x", [Winner(None, 0, 0, 1)], now, free_bytes=reserve + 1_000)
    assert txn.look("x").rows == 1
    assert commands.commit(state, "x", [Winner(None, 0, 0, 1)], now, free_bytes=reserve + 2_000)
    assert 1_000 < txn.table.debt_bytes < 2_000
    publish(host)
    assert txn.table.debt_bytes == 0


def test_the_log_is_kept(open_host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first part on that is open or not all published, and no longer."""
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 20_000)
    host = open_host()
    txn = calls(host)
    host.send([b"x" * 1_000] * 40, delay=HOUR)
    txn.begin("x", host.now_ms)
    txn.stage("x", bodies(0, 60), host.now_ms)
    first = int(txn.look("x").parts.columns["position"][0])

    def busy() -> None:
        for _ in range(4):
            host.send([b"x" * 1_000] * 40, delay=HOUR)
            host.checkpoint()

    def kept_from() -> int:
        return segment_bases(OsFileSystem(), f"{host.folder}/log")[0]

    busy()
    assert 0 < kept_from() <= first
    host.restart()
    txn = calls(host)
    assert txn.commit("x", host.now_ms, (0, 0, 60))
    txn.slices(host.now_ms, 2)
    busy()
    assert kept_from() <= first
    host.restart()
    publish(host)
    busy()
    assert kept_from() > first
    assert sorted(host.bodies(), key=int) == bodies(0, 60)


def test_a_log_that_lost_a_part(open_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start says so, rather than find it out in the middle of a publication."""
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 5_000)
    host = open_host()
    prepared(host, parts=2, rows=400)
    host.send([b"x" * 4_000], delay=HOUR)
    host.send([b"x" * 4_000], delay=HOUR)
    host.checkpoint()
    part = next(iter(calls(host).table.unpublished.values())).log_from
    host.engine.close()
    folder = f"{host.folder}/log"
    for base in segment_bases(OsFileSystem(), folder):
        if base <= part:
            (Path(folder) / f"{base:020d}.log").unlink()
    with pytest.raises(CorruptionError, match="staged"):
        host.open()
    host.engine.state.log.close()


def test_too_much_log(open_host: Any) -> None:
    """An open one whose parts hold too much log expires."""
    host = open_host(limits=Limits(staged_bytes_max=2_500))
    txn = calls(host)
    for name in ("x", "y"):
        txn.begin(name, host.now_ms)
        txn.stage(name, [b"a"], host.now_ms)
    host.engine.retire_unused(host.now_ms)
    assert len(txn.table.open) == 2
    host.send([b"x" * 1_000] * 10, delay=HOUR)
    txn.stage("y", [b"b"], host.now_ms, part=1)
    host.engine.retire_unused(host.now_ms)
    assert txn.look("x").state == "expired"
    assert list(txn.table.open) == ["y"]


def test_defaults_are_those_of_the_publication(host: Any) -> None:
    prepared(host, parts=1, rows=3, delay_ms=HOUR, ids="abc")
    host.configure(ttl_ms=5_000, max_retry=3)
    publish(host)
    for found in host.find(["a", "b", "c"]):
        assert found.row["max_retry"] == 3
        assert found.row["expires_at"] - found.row["deliver_at"] == 5_000


def test_a_backup_contains_staged_parts(host: Any, tmp_path: Path) -> None:
    """Parts in front of its checkpoint too: a restored folder publishes and commits them."""
    prepared(host)
    txn = calls(host)
    txn.begin("open", host.now_ms)
    txn.stage("open", [b"open"], host.now_ms, part=5)
    txn.slices(host.now_ms, 2)
    host.checkpoint()
    host.sync()
    fs = OsFileSystem()
    place, backup, again = str(host.folder), str(tmp_path / "backup"), str(tmp_path / "again")
    take_backup(Route(fs, place, fs, backup), version="1", now_ms=lambda: 1)
    restore_backup(Route(fs, backup, fs, again), now_ms=1, random=Random(1))
    host.engine.close()
    host.folder = tmp_path / "again"
    host.open()
    host.engine.release_hold(host.now_ms)
    assert calls(host).commit("open", host.now_ms, (5, 0, 1))
    publish(host)
    found = host.bodies()
    assert Counter(found) == Counter([*bodies(0, 60), b"open"])


def test_verify_misses_a_part(host: Any) -> None:
    """What a checkpoint says is staged has to stand in the log."""
    prepared(host, parts=2)
    txn = calls(host)
    txn.begin("open", host.now_ms)
    txn.stage("open", [b"open"], host.now_ms)
    host.checkpoint()
    host.sync()
    assert verify(host.folder).sound
    saved = txn.table.snapshot(host.engine.state.position)
    held = [int(txn.look("open").parts.columns["position"][0])]
    report = Report()
    verify_staged([saved], LogRange(0, 1 << 40, changed=False, transactions=held), report)
    assert [finding.position for finding in report.damage] == [
        int(part["position"]) for part in txn.look("x").parts
    ]


def test_published_rows_make_a_checkpoint_due(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PUBLISH frames are short, but a start would bring all their rows in again."""
    monkeypatch.setattr("delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_BYTES", 100_000)
    host = open_host()
    txn = calls(host)
    txn.begin("x", host.now_ms)
    txn.stage("x", [b"x" * 1_000] * 200, host.now_ms)
    txn.commit("x", host.now_ms, (0, 0, 200))
    host.checkpoint()
    upkeep = host.engine.upkeep
    assert not upkeep.checkpoint_due(host.now_ms)
    publish(host)
    assert host.engine.state.position - upkeep.checkpoint_position < 100_000
    assert upkeep.checkpoint_due(host.now_ms)
    host.checkpoint()
    assert not upkeep.checkpoint_due(host.now_ms)


# ------------------------------------------ between commit and publication, or at a quota


@pytest.mark.parametrize("slices", [0, 1, 4])
def test_a_default_group_that_was_away(host: Any, slices: int) -> None:
    """It sees nothing that was committed before it came back, published by then or not."""
    prepared(host, parts=1, rows=20)
    calls(host).slices(host.now_ms, slices)
    host.configure(default_group=False)
    host.configure(default_group=True)
    publish(host)
    for _ in range(2):
        assert host.topic.default.counts.living == 0
        assert host.bodies() == []
        host.restart()
    host.send([b"new"])
    assert host.bodies() == [b"new"]


@pytest.mark.parametrize("committed", [True, False])
def test_bytes_of_what_is_staged_count_in_the_quota(host: Any, committed: bool) -> None:
    """Of a topic to which nothing was sent yet, too, and by what they are."""
    host.configure(quota=Quota(bytes=10_000))
    txn, big = calls(host), [b"x" * 900] * 5
    txn.begin("x", host.now_ms)
    txn.begin("y", host.now_ms)
    for part in range(2):
        assert txn.stage("x", big, host.now_ms, part=part, delay_ms=HOUR)
    with pytest.raises(QuotaError):
        txn.stage("x", big, host.now_ms, part=2, delay_ms=HOUR)
    host.checkpoint()
    host.restart()
    txn = calls(host)
    if committed:
        txn.commit("x", host.now_ms, (0, 0, 5), (1, 0, 5))
        for count in range(2):
            with pytest.raises(QuotaError):
                txn.stage("y", big, host.now_ms, delay_ms=HOUR)
            txn.slices(host.now_ms, count)
        publish(host)
        with pytest.raises(QuotaError):
            txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        assert txn.stage("y", big[:1], host.now_ms, delay_ms=HOUR)
    else:
        with pytest.raises(QuotaError):
            txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        txn.abort("x", host.now_ms)
        assert txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        assert txn.stage("y", big, host.now_ms, part=1, delay_ms=HOUR)


def test_a_job_meets_what_was_committed_before_it(host: Any) -> None:
    """A cancel by filter is about every message that counted when it was begun."""
    prepared(host, parts=2, rows=20, delay_ms=HOUR)
    calls(host).slices(host.now_ms, 2)
    job = begin_job(host.engine.state, host.topic, JobSpec("cancel", MessageFilter()), host.now_ms)
    txn = calls(host)
    txn.begin("later", host.now_ms)
    txn.stage("later", [b"later"], host.now_ms, delay_ms=HOUR)
    txn.commit("later", host.now_ms, (0, 0, 1))
    host.sync()
    host.engine.run_inline(host.engine.jobs.work(lambda: host.now_ms))
    host.restart()
    publish(host)
    assert host.engine.jobs.due(host.now_ms)
    host.engine.run_inline(host.engine.jobs.work(lambda: host.now_ms))
    found = host.engine.state.jobs.by_number[job.number]
    assert (found.state, found.done) == ("done", 40)
    host.advance(HOUR)
    assert host.bodies() == [b"later"]


def test_nothing_is_held_of_a_part_when_all_is_published(host: Any) -> None:
    """A part of 64 MiB stays in no memory: not after a start either, which publishes again."""
    prepared(host, parts=2, rows=20)
    publish(host)
    part = int(calls(host).look("x").parts)
    assert part == 2
    host.restart()
    assert not host.engine.state.staged._loaded


def test_parts_of_many_topics(host: Any) -> None:
    """Each topic's rows count where they are: staged, on their way, dropped."""
    txn, topics = calls(host), 40
    for name in ("x", "y"):
        txn.begin(name, host.now_ms)
        for number in range(2 * topics):
            rows = bodies(0, 1 + number % topics)
            txn.stage(name, rows, host.now_ms, part=number, topic=f"t{number % topics}")
    numbers = [host.engine.topic(f"t{number}").number for number in range(topics)]
    held = [txn.table.outstanding_of(number) for number in numbers]
    assert [one.rows for one in held] == [4 * (1 + number) for number in range(topics)]
    txn.commit("x", host.now_ms, *((number, 0, 1 + number) for number in range(topics)))
    txn.abort("y", host.now_ms)
    for _ in range(2):
        state = host.engine.state
        living = [state.by_number[number].default.counts.living for number in numbers]
        assert living == list(range(1, topics + 1))
        held = [calls(host).table.outstanding_of(number) for number in numbers]
        assert [(one.rows, one.staged_rows) for one in held] == [(n, 0) for n in living]
        host.checkpoint()
        host.restart()
    publish(host)
    assert calls(host).look("x").discarded_rows == sum(living), "a second part of each topic lost"
    assert not any(calls(host).table.has_rows_of(number) for number in numbers)
