"""Compaction of hours: disk space follows what lives, and nobody can tell by asking.

Method: timers with ids in hours ahead are replaced, cancelled, moved and purged; then the host does
what a node does, checkpoints and compaction. Sizes are those of the disk, in blocks.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.upkeep import compaction
from delaylog.storage.hours import compaction as rewriting
from delaylog.storage.hours.far import far_border
from delaylog.storage.layout import MessageState
from tests.broker.verify.verifying import verify

HOUR = 3_600_000
TIMERS = 400
AHEAD = 5 * HOUR


@pytest.fixture(autouse=True)
def small(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_MIN", 64)
    monkeypatch.setattr(rewriting, "REWRITE_ROWS", 64)
    host.configure(merge="replace")


def names() -> list[str]:
    return [f"timer-{k}" for k in range(TIMERS)]


def bodies(version: int) -> list[bytes]:
    return [b"version %d of timer %d %s" % (version, k, b"." * 60) for k in range(TIMERS)]


def replace_all(host: Any, version: int, delay: int = AHEAD) -> None:
    host.send(bodies(version), ids=names(), delay=delay)


def settle(host: Any) -> None:
    """What a node does within some minutes."""
    for _ in range(3):
        host.advance(200_000)
        host.engine.run_inline(host.engine.compactor.work(lambda: host.now_ms))
        host.far_work()
        host.checkpoint()
    host.engine.run_inline(host.engine.compactor.work(lambda: host.now_ms))


def logs(host: Any) -> int:
    return sum(path.stat().st_size for path in host.folder.glob("hours/*/delay.log"))


def sound(host: Any) -> None:
    host.checkpoint()
    assert verify(host.folder).damage == []


def test_replaced_timers_leave_no_records(host: Any) -> None:
    """Forty versions of each timer: what is kept is little more than one, and it is delivered."""
    for version in range(40):
        replace_all(host, version)
        host.advance(1_000)
    host.checkpoint()
    before = logs(host)
    settle(host)
    assert host.engine.compactor.hours >= 1
    assert logs(host) < before / 20
    sound(host)
    host.restart()
    host.advance(AHEAD + HOUR)
    assert sorted(host.bodies()) == sorted(bodies(39))


def test_ids_and_states_after_a_compaction(host: Any) -> None:
    for version in range(4):
        replace_all(host, version)
    settle(host)
    assert host.engine.compactor.rows >= 3 * TIMERS
    assert host.state_of("timer-7") is MessageState.WAITING
    replace_all(host, 9)
    host.restart()
    host.advance(AHEAD + HOUR)
    assert sorted(host.bodies()) == sorted(bodies(9))


def test_timers_that_were_moved_are_found_by_their_first_id(host: Any) -> None:
    """Reschedule leaves the first row as a sign post: its record goes, the post stays."""
    host.send(bodies(0), ids=names(), delay=AHEAD)
    for again in range(6):
        host.reschedule(names(), host.now_ms + AHEAD + again * 1_000)
    host.checkpoint()
    before = logs(host)
    settle(host)
    assert logs(host) < before / 3
    sound(host)
    host.restart()
    assert host.state_of("timer-3") is MessageState.WAITING
    assert host.cancel(["timer-3"]) == [0]
    host.advance(AHEAD + HOUR)
    assert len(host.bodies()) == TIMERS - 1


def test_what_can_still_be_asked_for_stays(host: Any) -> None:
    """Within its keep time an ended message is shown; afterwards it may be unknown."""
    host.configure(merge="replace", ended_keep_ms=20 * 60_000)
    for version in range(4):
        replace_all(host, version)
    settle(host)
    assert host.engine.compactor.rows == 0
    host.advance(15 * 60_000)
    settle(host)
    assert host.engine.compactor.rows >= 3 * TIMERS


def test_a_start_from_the_older_checkpoint(host: Any) -> None:
    """Replay reads nothing that was removed, from either checkpoint."""
    for version in range(6):
        replace_all(host, version)
        host.advance(1_000)
    settle(host)
    assert host.engine.compactor.rows >= 5 * TIMERS
    host.engine.close()
    newest = max(host.folder.glob("checkpoint-*"))
    newest.unlink()
    host.open()
    host.advance(AHEAD + HOUR)
    assert sorted(host.bodies()) == sorted(bodies(5))


def test_leftovers_of_a_past_hour_do_not_keep_it(host: Any) -> None:
    """One message in a hundred stays ready: the hour shrinks to those."""
    host.send(bodies(0), delay=1_000)
    host.advance(2_000)
    got = host.receive(TIMERS)
    host.ack(got[4:])
    host.nack(got[:4])
    host.checkpoint()
    before = logs(host)
    host.advance(3 * HOUR)
    settle(host)
    assert logs(host) < before / 10
    sound(host)
    host.restart()
    host.advance(60_000)
    assert len(host.bodies()) == 4


def test_purged_messages_go_from_hours_ahead(host: Any) -> None:
    host.send(bodies(0), delay=AHEAD)
    host.send([b"stays"], delay=AHEAD, topic="other")
    host.purge("default", force=True)
    host.checkpoint()
    settle(host)
    assert host.engine.compactor.rows == TIMERS
    assert logs(host) == len(b"stays")
    sound(host)
    host.restart()
    host.advance(AHEAD + HOUR)
    assert host.bodies() == []


def test_the_present_hour_and_the_next_are_left_alone(host: Any) -> None:
    for version in range(4):
        replace_all(host, version, delay=60 * 60_000)
    settle(host)
    assert host.engine.compactor.rows == 0


def test_nothing_is_removed_while_files_are_copied(host: Any) -> None:
    for version in range(4):
        replace_all(host, version)
    host.engine.upkeep.files_pinned = lambda: True
    settle(host)
    assert host.engine.compactor.rows == 0
    host.engine.upkeep.files_pinned = lambda: False
    host.engine.run_inline(host.engine.compactor.work(lambda: host.now_ms))
    assert host.engine.compactor.rows >= 3 * TIMERS


def everything(host: Any) -> bytes:
    """Every byte of the data folder."""
    return b"".join(path.read_bytes() for path in host.folder.rglob("*") if path.is_file())


def erase(host: Any) -> None:
    host.purge(force=True, erase=True)


def test_what_is_erased_is_in_no_file(host: Any) -> None:
    """Waiting, acked, dead and leased messages, of hours ahead and past, and their log."""
    host.configure(dead_keep_ms=7 * 24 * HOUR)
    secret = [b"SECRET-%d-ALICE" % k for k in range(12)]
    host.send(secret, ids=[f"ID-OF-ALICE-{k}" for k in range(12)], delay=[0, AHEAD, HOUR // 2] * 4)
    host.send([b"of somebody else"] * 12, delay=[0, AHEAD, HOUR // 2] * 4, topic="other")
    got = host.receive(4)
    host.ack(got[:1])
    host.engine.state.log.roll()
    host.end_by_force(got[1].any_id, MessageState.DEAD, hide=False)
    host.checkpoint()
    assert b"ALICE" in everything(host)
    erase(host)
    assert host.topic.erasing
    for _ in range(4):
        settle(host)
    assert host.topic.erasing, "the present hour is not over yet"
    host.advance(2 * HOUR)
    for _ in range(4):
        settle(host)
    assert not host.topic.erasing
    assert b"ALICE" not in everything(host)
    sound(host)
    host.restart()
    assert not host.topic.erasing
    host.advance(AHEAD + HOUR)
    host.topic_name = "other"
    assert host.bodies() == [b"of somebody else"] * 12


@pytest.mark.parametrize("archive_hold", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_due_in_years_is_erased_within_minutes(
    host: Any, archive_hold: bool, restarted: bool
) -> None:
    """Also where an archive waits for what ended: of others' messages it gets all."""
    host.archive_hold = archive_hold
    host.restart()
    delays = [30 * 24 * HOUR, 365 * 24 * HOUR, AHEAD]
    host.send([b"of somebody else"] * 12, delay=delays * 4, topic="other")
    for k in range(12):
        host.send([b"SECRET-%d-ALICE" % k], ids=[f"ID-OF-ALICE-{k}"], delay=delays[k % 3])
        host.checkpoint()
    host.engine.state.log.roll()
    host.checkpoint()
    assert list(host.folder.glob("hours/far/*.run"))
    erase(host)
    host.send([b"sent later"], delay=delays[1])
    settle(host)
    if restarted:
        host.restart()
    for _ in range(4):
        settle(host)
    assert not host.topic.erasing
    assert b"ALICE" not in everything(host)
    sound(host)
    host.advance(delays[1] + HOUR)
    assert host.bodies() == [b"sent later"]
    host.topic_name = "other"
    assert host.bodies() == [b"of somebody else"] * 12


def test_erasing_goes_on_after_a_restart(host: Any) -> None:
    host.send([b"SECRET-ALICE"] * 10, delay=AHEAD)
    erase(host)
    host.restart()
    assert host.topic.erasing
    host.send([b"sent later"], delay=AHEAD)
    for _ in range(6):
        settle(host)
        host.restart()
    assert not host.topic.erasing
    assert b"ALICE" not in everything(host)
    host.advance(AHEAD + HOUR)
    assert host.bodies() == [b"sent later"]


def test_a_purge_alone_erases_nothing_at_once(host: Any) -> None:
    host.send([b"KEPT"] * 10, delay=AHEAD)
    host.purge("default", force=True)
    settle(host)
    assert not host.topic.erasing
    assert b"KEPT" in everything(host)


def drive(host: Any, work: Any, jobs: int = 1 << 30) -> None:
    """So many jobs of some work; the log is synced where it waits."""
    for step in work:
        if callable(step):
            step()
            jobs -= 1
            if not jobs:
                return
        elif step is not None:
            host.sync()


def test_a_merge_beside_a_split_leaves_states(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has copies of rows that the merge drops: they may not come to life again."""
    monkeypatch.setattr(far_border, "SPLIT_ROWS_MAX", 50)
    host.configure(ended_keep_ms=60_000)
    hour_ms = 3_600_000
    for part in range(8):
        ids = [f"{part}-{k}" for k in range(40)]
        host.send(
            [name.encode() for name in ids],
            ids=ids,
            delay=40 * hour_ms - host.now_ms % hour_ms + part,
        )
        host.flush()
        host.cancel(ids[:10])
        host.flush()
    host.advance(200_000)
    host.checkpoint()
    host.advance(8 * hour_ms)
    assert host.engine.housekeeping.split_due(host.now_ms)
    split = host.engine.housekeeping.split_work()
    drive(host, split, jobs=3)
    drive(host, host.engine.housekeeping.merge_work(lambda: host.now_ms))
    drive(host, split)
    host.advance(33 * hour_ms)
    wanted = [b"%d-%d" % (part, k) for part in range(8) for k in range(10, 40)]
    assert sorted(host.bodies(1_000)) == sorted(wanted)


def test_purge_erase_finds_rows_that_a_run_still_holds(host: Any) -> None:
    """Rows stay in their run after their hour has come near, as long as it has later hours."""
    host.send([b"SECRET %d" % k for k in range(12)], delay=40 * HOUR)
    host.send([b"other"] * 12, delay=5_000 * HOUR, topic="other")
    host.flush()
    host.checkpoint()
    host.advance(8 * HOUR)
    host.far_work()
    host.checkpoint()
    state = host.engine.state
    state.log.roll()
    erase(host)
    for _ in range(8):
        settle(host)
    assert not host.topic.erasing
    assert not [path for path in host.folder.rglob("*.run") if b"SECRET" in path.read_bytes()]


def mostly_ended_hour(host: Any) -> tuple[int, Any]:
    """An hour that is over, and its messages: 50 of 60 are acked, the others leased for long."""
    host.configure(ended_keep_ms=1_000)
    hour = host.now_ms // HOUR
    host.send([b"x"] * 60, ids=[f"id-{k}" for k in range(60)], delay=100)
    host.flush()
    host.advance(1_000)
    got = host.receive(100, lease=12 * HOUR)
    host.ack(got[:50])
    host.flush()
    host.advance(3 * HOUR)
    for _ in range(3):
        host.advance(100_000)
        host.checkpoint()
    return hour, got


def test_an_hour_that_is_looked_through_is_not_removed(host: Any, monkeypatch: Any) -> None:
    """Its last messages end, and a checkpoint comes, between two slices of the look."""
    monkeypatch.setattr(compaction, "_SLICE_ROWS", 10)
    monkeypatch.setattr(compaction, "ROWS_MIN", 5)
    hours = host.engine.state.hours
    hour, got = mostly_ended_hour(host)
    look = host.engine.compactor.look_through(hour, hours.counts.near[hour], lambda: host.now_ms)
    next(look)()
    assert next(look) is None
    host.ack(got[50:])
    for _ in range(4):
        host.advance(100_000)
        host.checkpoint()
    for step in look:
        if callable(step):
            step()
    for _ in range(2):
        host.advance(100_000)
        host.checkpoint()
    assert hour not in hours.counts


def test_an_hour_that_is_written_anew_is_not_removed(host: Any, monkeypatch: Any) -> None:
    """Its last messages end, and a checkpoint that compaction waits for finds it over."""
    monkeypatch.setattr(compaction, "ROWS_MIN", 5)
    engine = host.engine
    hour, got = mostly_ended_hour(host)
    engine.run_inline(engine.compactor.work(lambda: host.now_ms))
    for _ in range(3):
        host.advance(100_000)
        host.checkpoint()
    work = engine.compactor.work(lambda: host.now_ms)
    monkeypatch.setattr(engine.upkeep, "checkpoint_running", True)
    assert next(work) == 0.01, "it waits for the checkpoint"
    host.ack(got[50:])
    monkeypatch.setattr(engine.upkeep, "checkpoint_running", False)
    for _ in range(4):
        host.advance(100_000)
        host.checkpoint()
    assert hour in engine.state.hours.counts
    engine.run_inline(work)
    for _ in range(2):
        host.advance(100_000)
        host.checkpoint()
    assert hour not in engine.state.hours.counts


def test_hours_that_are_far_again_begin_anew(host: Any) -> None:
    """The clock is set back by days: what an hour of the same name was left with says nothing."""
    due = host.now_ms + 40 * HOUR
    host.send([b"old"] * 3, ids=["a", "b", "c"], at=due)
    host.send([b"later"] * 3, ids=["d", "e", "f"], at=host.now_ms + 5_000 * HOUR)
    host.flush()
    host.cancel(["a", "b", "c", "d"])
    host.flush()
    host.checkpoint()
    host.advance(8 * HOUR)
    host.far_work()
    host.checkpoint()
    host.advance(36 * HOUR)
    hours = host.engine.state.hours
    for _ in range(6):
        host.advance(600_000)
        host.checkpoint()
        host.far_work()
    assert due // HOUR not in hours.counts
    host.set_back(60 * HOUR)
    for _ in range(3):
        host.advance(HOUR)
        host.checkpoint()
        host.far_work()
    assert hours.counts.far_from <= due // HOUR + 1, "years of hours are far ones again"
    host.send([b"new"] * 3, at=due)
    host.send([b"next hour"] * 3, at=due + HOUR)
    host.flush()
    host.restart()
    host.advance(due + 2 * HOUR - host.now_ms)
    assert sorted(host.bodies()) == [b"new"] * 3 + [b"next hour"] * 3
