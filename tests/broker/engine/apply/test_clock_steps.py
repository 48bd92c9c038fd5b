"""The clock is set back (and that is confirmed) or ahead: never early, no stall, nothing lost."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from tests.effort import tries

SECOND = 1_000
HOUR = 3_600_000
DAY = 24 * HOUR


def test_a_restart_does_not_run_behind_the_published_time(host: Any) -> None:
    host.send(1, delay=0)
    host.advance(DAY)
    told = host.now_ms
    host.engine.write_tick(told)
    host.engine.close()
    host.now_ms -= DAY
    host.open()
    assert host.engine.started_ms == told


def test_after_an_accepted_step_a_restart_goes_on_from_the_new_time(host: Any) -> None:
    host.send(1, delay=0)
    host.engine.write_tick(host.now_ms)
    host.set_back(DAY)
    host.send(1, delay=0)
    host.restart()
    assert host.engine.started_ms == host.now_ms


def test_a_checkpoint_says_the_time_where_the_ticks_were_lost(host: Any) -> None:
    """Nothing syncs the ticks, so a power cut may take them; the clock does not run back by it.

    Else the hour floor would stand in the future, and what is sent now would wait for it.
    """
    host.advance(DAY)
    host.send(1, delay=0)
    host.ack(host.receive())
    host.checkpoint()
    told = host.now_ms
    host.engine.close()
    os.unlink(host.folder / "tick")
    host.now_ms -= DAY
    host.open()
    assert host.engine.started_ms == told
    host.set_back(DAY)
    host.send([b"new"], delay=SECOND)
    assert collect(host, 2 * SECOND) == [(b"new", SECOND)]


def test_rows_that_were_shown_before_they_were_durable(host: Any) -> None:
    """With the lax fsync dial the wheel sees rows before the disk does; a step loses none."""
    log = host.engine.state.log

    def write_and_show() -> None:
        log.write_pending()
        host.engine.commit(log.written_position, host.now_ms)

    host.send([b"soon"], delay=30 * SECOND, turn=False)
    host.send([b"later"], delay=2 * HOUR, turn=False)
    write_and_show()
    host.set_back(5 * SECOND, turn=False)
    write_and_show()
    host.engine.run_due(host.now_ms)
    host.engine.run_inline(host.engine.dispatcher.loader.load_work())
    host.turn()
    assert [body for body, _ in collect(host, 3 * HOUR)] == [b"soon", b"later"]


@pytest.mark.parametrize("seed", range(tries(6)))
def test_hours_that_were_deleted_come_to_be_again(host: Any, seed: int) -> None:
    """Their rows are numbered from one again and never pass for the old ones."""
    random = Random(seed)
    host.configure(ended_keep_ms=0)
    old = host.send(20, delay=0)
    host.ack(host.receive())
    hour = host.now_ms // HOUR
    for _ in range(8):
        host.advance(HOUR)
        host.send(1, delay=0)
        host.ack(host.receive())
        host.checkpoint()
    assert hour not in host.engine.state.hours.counts
    host.set_back(8 * HOUR)
    fresh = host.send([b"again-%d" % k for k in range(7)], delay=60 * SECOND)
    assert fresh.refs[0] >> 43 == hour
    steps = [host.flush, host.checkpoint, host.restart, host.crash]
    for step in random.choices(steps, k=5):
        step()
    assert host.find(host.ids_of(old)) == [None] * 20
    host.advance(59 * SECOND)
    assert host.receive() == []
    host.advance(SECOND)
    assert sorted(host.bodies()) == [b"again-%d" % k for k in range(7)]


# --------------------------------------------------------------------------- all together


def hour_folders(host: Any) -> list[str]:
    return sorted(os.listdir(host.folder / "hours"))


def collect(host: Any, ms: int) -> list[tuple[bytes, int]]:
    """Let time pass; (body, how long it took from now) of all that is handed out, and ack it."""
    began, out = host.now_ms, []
    target = began + ms
    while True:
        while got := host.receive():
            for message in got:
                assert message.deliver_at_ms <= host.now_ms, "never early"
                out.append((message.body, host.now_ms - began))
            host.ack(got)
        wake = host.engine.next_wake_ms()
        if wake is None or wake > target:
            host.advance(target - host.now_ms)
            return out
        host.advance(max(wake - host.now_ms, 0))


def test_a_removal_that_is_under_way_when_the_clock_is_set_back(host: Any) -> None:
    """The hour takes a new row between two slices of its removal: it stays."""
    host.configure(ended_keep_ms=5 * HOUR)
    host.send(10, delay=1_000)
    host.advance(2_000)
    host.ack(host.receive())
    host.checkpoint()
    host.advance(4 * HOUR)
    host.checkpoint(2)
    assert len(hour_folders(host)) == 1
    removal = host.engine.upkeep.drop_hours(host.now_ms + 5 * HOUR)
    next(removal)
    host.set_back(4 * HOUR)
    host.send([b"new"], delay=1_000)
    host.engine.run_inline(removal)
    host.checkpoint()
    host.restart()
    assert collect(host, 2_000) == [(b"new", 1_000)]


def test_an_id_does_not_lead_into_an_hour_that_came_to_be_again(host: Any) -> None:
    """Its message moved, ended and went; another message has its row's number now."""
    name = host.ids_of(host.send([b"moved", b"pin"], delay=[1_000, 1_001]))[0]
    host.advance(1_001)
    moved, pin = host.receive()
    host.nack([moved], delay=2 * HOUR)
    host.nack([pin], delay=6 * HOUR)
    host.advance(2 * HOUR)
    host.ack(host.receive())
    host.advance(3 * HOUR)
    host.checkpoint(4)
    assert len(hour_folders(host)) == 2, "the home of pin, and where it is"
    host.set_back(3 * HOUR + 1_000)
    host.send([b"stranger"], delay=500)
    assert host.state_of(name) is None
    assert host.cancel([name]) == [2]
    assert collect(host, 1_000) == [(b"stranger", 500)]


def test_frames_in_flight_and_work_under_way(host: Any) -> None:
    """Rows that are not durable yet, and a second that is being loaded, come once all the same."""
    for k in range(4):
        host.send([b"s%d" % k], delay=HOUR + 15_000 + k)
    host.send([b"p"], delay=3 * HOUR)
    host.flush()
    host.now_ms += HOUR + 6_000
    host.engine.run_due(host.now_ms)
    old = host.engine.dispatcher
    work = old.loader.load_work()
    next(work)
    host.engine.run_due(host.now_ms)
    for _ in range(3):
        next(work, None)
    host.send([b"flying"], delay=100, turn=False)
    host.set_back(1_000, turn=False)
    assert host.engine.dispatcher is not old
    host.engine.run_inline(work)
    assert not old.loader.loading
    host.turn()
    got = collect(host, 4 * HOUR)
    assert [body for body, _ in got] == [b"flying", b"s0", b"s1", b"s2", b"s3", b"p"]
    assert got[0][1] == 1_100
    host.check_counts()


def test_a_producer_is_remembered_for_ten_minutes_of_the_new_time(host: Any) -> None:
    """The repeat is answered as the first one; ten minutes later it is forgotten."""
    first = host.send([b"a"], delay=1_000, producer="p", sequence=1)
    host.set_back(DAY)
    again = host.send([b"a"], delay=1_000, producer="p", sequence=1)
    assert again.refs.tolist() == first.refs.tolist()
    host.restart()
    assert len(host.engine.state.producers) == 1
    host.engine.state.producers.expire(host.now_ms + 600_001)
    assert len(host.engine.state.producers) == 0


@pytest.mark.parametrize("crash", [False, True])
def test_a_producer_is_remembered_over_a_forward_step(host: Any, crash: bool) -> None:
    """An answer is lost and the clock is set ahead: the repeat makes no second message."""
    first = host.send([b"a"], delay=2 * DAY, producer="p", sequence=1)
    host.advance(60 * SECOND)
    host.jump_ahead(DAY)
    host.checkpoint()
    if crash:
        host.restart()
    again = host.send([b"a"], delay=2 * DAY, producer="p", sequence=1)
    assert again.refs.tolist() == first.refs.tolist()
    host.advance(600 * SECOND)
    host.checkpoint()
    assert len(host.engine.state.producers) == 0


def test_a_used_group_is_not_idle_after_a_forward_step(host: Any) -> None:
    host.put_group("brief", ephemeral=True)
    host.receive(group="brief")
    host.jump_ahead(DAY)
    host.engine.retire_unused(host.now_ms)
    assert host.topic.group("brief") is not None
    host.set_back(2 * DAY)
    host.advance(HOUR)
    host.engine.retire_unused(host.now_ms)
    assert host.topic.group("brief") is None


def test_waiters_for_a_rate_limit_are_woken_after_a_step_back(host: Any) -> None:
    host.configure(rate_limit={"per_second": 1, "burst": 1})
    host.send(3)
    assert len(host.receive()) == 1
    assert host.receive() == []
    host.engine.state.marks.newly_ready.clear()
    host.set_back(HOUR, turn=False)
    assert host.engine.state.marks.newly_ready
    host.send(1)
    assert host.receive() == []
    host.engine.state.marks.newly_ready.clear()
    host.advance(1_000)
    assert host.engine.state.marks.newly_ready
    assert len(host.receive()) == 1
