"""The engine's largest tests once more, with every hour but the present one in the far tier.

Purpose: what is true of hours in folders is true of far hours: histories against the model, power
cuts, followers with the same hours, backups of one moment.
Method: the border of the far tier is an hour ahead instead of a day, and two sets are merged
instead of eight; the tests themselves are those of the files they come from.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.storage.checkpoint import checkpoint_names, read_checkpoint
from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.hours import hour_store
from delaylog.storage.hours.far import far_tier, run_stack
from tests.broker.backup.test_backup import test_a_backup_is_one_moment, torn
from tests.broker.engine.test_standby import test_the_same_hours
from tests.broker.engine.test_whole_queue import test_the_whole_queue_agrees_with_a_model

__all__ = [
    "test_a_backup_is_one_moment",
    "test_the_same_hours",
    "test_the_whole_queue_agrees_with_a_model",
    "torn",
]


@pytest.fixture(autouse=True)
def one_near_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_store, "NEAR_HOURS", 1)
    monkeypatch.setattr(run_stack, "FAN_IN", 2)


def test_replaced_far_timers_leave_the_tier(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of replaced timers are dropped by merges, with their ids and states; the rest stays."""
    monkeypatch.setattr(far_tier, "_DEAD_ROWS_MIN", 200)
    host.configure(merge="replace")
    names = [f"timer-{k}" for k in range(400)]
    engine = host.engine
    for version in range(12):
        bodies = [b"version %d of timer %d" % (version, k) for k in range(len(names))]
        host.send(bodies, ids=names, delay=50 * 3_600_000)
        host.advance(400_000)
        host.flush()
        host.checkpoint()
        host.far_work()
    hours = engine.state.hours
    assert hours.counts.far_living == len(names)
    assert hours.far.rows.rows < 4 * len(names)
    assert not hours.far.merges.due(hours.counts), "nothing is merged again and again"
    host.cancel(names[:100])
    host.restart()
    host.advance(51 * 3_600_000)
    got = sorted(host.bodies())
    assert got == sorted(b"version 11 of timer %d" % k for k in range(100, 400))


def test_hours_come_near_while_a_merge_goes_on(host: Any) -> None:
    """A large merge takes minutes. After a step of the clock nobody may wait for its end."""
    engine, hour_ms = host.engine, 3_600_000
    for part in range(6):
        for hours in (50, 500):
            host.send([b"%d %d %d" % (hours, part, k) for k in range(40)], delay=hours * hour_ms)
        host.flush()
        host.checkpoint()
    assert engine.housekeeping.merge_due()
    merge = engine.housekeeping.merge_work(lambda: host.now_ms)
    read: Any = next(merge)
    read()
    host.jump_ahead(51 * hour_ms)
    assert engine.housekeeping.split_due(host.now_ms)
    engine.run_inline(engine.housekeeping.split_work())
    host.advance(1_000)
    wanted = [b"50 %d %d" % (part, k) for part in range(6) for k in range(40)]
    assert sorted(host.bodies()) == sorted(wanted)
    engine.run_inline(merge)
    host.restart()
    host.advance(450 * hour_ms)
    wanted += [b"500 %d %d" % (part, k) for part in range(6) for k in range(40)]
    assert sorted(host.bodies()) == sorted(wanted), "the leases of the first ones have ended"


def test_a_stop_gives_merges_up(host: Any) -> None:
    """A merge of a large tier takes minutes; whoever stops a broker does not wait for it."""
    for _ in range(6):
        host.send([b"x"] * 40, delay=500 * 3_600_000)
        host.flush()
    merge = host.engine.housekeeping.merge_work(lambda: host.now_ms, stopping=lambda: True)
    assert list(merge) == []
    begun = host.engine.housekeeping.merge_work(
        lambda: host.now_ms, stopping=iter([False, True]).__next__
    )
    host.engine.run_inline(begun)
    assert host.engine.housekeeping.merge_due()
    host.restart()
    host.advance(501 * 3_600_000)
    assert len(host.bodies(1_000)) == 240


def test_groups_come_and_go_while_rows_are_judged(host: Any) -> None:
    hour_ms = 3_600_000
    ids = [str(k) for k in range(300)]
    host.send([b"x"] * 300, ids=ids, delay=500 * hour_ms)
    host.flush()
    host.reschedule(ids, host.now_ms + 600 * hour_ms)
    host.flush()
    merge = host.engine.housekeeping.merge_work(lambda: host.now_ms)
    for number, step in enumerate(merge):
        if callable(step):
            step()
        host.put_group(f"group-{number}")
    host.advance(601 * hour_ms)
    assert len(host.bodies(1_000)) == 300


def test_a_checkpoint_that_is_closed_once_it_is_written(host: Any) -> None:
    """A leader that steps down closes it. Its runs stay as long as it is kept."""
    upkeep = host.engine.upkeep
    host.checkpoint(2)
    host.send(10, delay=50 * 3_600_000)
    host.checkpoint()
    host.send(10, delay=50 * 3_600_000)
    host.sync()
    position = host.engine.state.position
    work = upkeep.checkpoint(lambda: host.now_ms)
    while upkeep.kept_positions[-1] < position:
        step = next(work)
        if callable(step):
            step()
    work.close()
    host.far_work()
    host.send(1, delay=50 * 3_600_000)
    host.checkpoint()
    assert position in upkeep.kept_positions
    check_kept(host)


def check_kept(host: Any) -> None:
    """All runs that the kept checkpoints name exist."""
    fs, folder = host.engine.fs, host.engine.folder
    for name in checkpoint_names(fs, folder):
        found = read_checkpoint(fs, f"{folder}/{name}")
        assert found is not None
        for run in found.runs.sizes:
            assert fs.exists(f"{folder}/hours/far/{run}")


def test_a_start_keeps_the_runs_of_both_checkpoints(host: Any) -> None:
    for _ in range(2):
        host.send(10, delay=50 * 3_600_000)
        host.flush()
        host.far_work()
        host.checkpoint()
    host.restart()
    check_kept(host)


@pytest.mark.parametrize("named", [False, True])
def test_a_checkpoint_that_fails_before_or_after_it_has_its_name(
    host: Any, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Without a descriptor, for one. Its runs stay if it is kept, else those of the one before."""
    upkeep, fs, folder = host.engine.upkeep, host.engine.fs, host.engine.folder

    def fail(path: str, *_: Any) -> None:
        if path == folder or path.startswith(f"{folder}/checkpoint-"):
            raise NoDescriptorError("no descriptor is free")

    host.checkpoint(2)
    host.send(10, delay=50 * 3_600_000)
    host.checkpoint()
    host.send(10, delay=50 * 3_600_000)
    host.flush()
    host.sync()
    position = host.engine.state.position
    with monkeypatch.context() as patched:
        # The checkpoint is renamed first; then the data folder is synced.
        patched.setattr(fs, "sync_folder" if named else "rename", fail)
        with pytest.raises(NoDescriptorError):
            host.engine.run_inline(upkeep.checkpoint(lambda: host.now_ms))
    host.far_work()
    host.send(1, delay=50 * 3_600_000)
    host.checkpoint()
    assert (position in upkeep.kept_positions) == named
    check_kept(host)
    host.far_work()
    host.checkpoint()
    check_kept(host)


def test_messages_move_while_a_merge_outlives_the_begin_of_a_checkpoint(host: Any) -> None:
    """A start from that checkpoint applies the moves again, so it must find the rows they left."""
    hour_ms, ids = 3_600_000, [str(k) for k in range(80)]
    for part in (ids[:40], ids[40:]):
        host.send([text.encode() for text in part], ids=part, delay=50 * hour_ms)
        host.reschedule(part, host.now_ms + 700 * hour_ms)
        host.flush()
    merge = host.engine.housekeeping.merge_work(lambda: host.now_ms)
    run_step(merge)
    checkpoint = host.engine.upkeep.checkpoint(lambda: host.now_ms)
    while not host.engine.state.hours.flusher.boundary:
        run_step(checkpoint)
    host.reschedule(ids, host.now_ms + 30 * 60_000)
    works = [merge, checkpoint]
    while works:
        works = [work for work in works if run_step(work)]
    host.restart()
    host.reschedule(ids, host.now_ms + 40 * 60_000)
    host.advance(hour_ms)
    assert sorted(host.bodies()) == sorted(text.encode() for text in ids)


def run_step(work: Any) -> bool:
    """Run background work up to its next pause; return whether some is left."""
    for step in work:
        if callable(step):
            step()
        return True
    return False
