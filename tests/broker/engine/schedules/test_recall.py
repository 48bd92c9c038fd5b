"""What was sent ahead is taken back: no message, and no instant lost, also over a restart."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.schedules.runner import begin_after, recall_ahead
from delaylog.broker.rules.schedules.instants import next_instant
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member
from tests.broker.engine.schedules.rig import ScheduleHost

SECOND = 1_000


def recall(host: ScheduleHost, name: str = "s") -> None:
    """Without a turn, in which the schedule would be sent ahead again."""
    recall_ahead(host.engine.state, host.topic, host.one(name), host.now_ms)


def near(host: ScheduleHost, before_ms: int, name: str = "s") -> int:
    """Go to a moment before the next instant, which is returned."""
    instant = host.one(name).progress.next_ms
    host.advance(instant - before_ms - host.now_ms)
    return instant


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pause_half_a_second_before_sends_nothing(host: ScheduleHost, restarted: bool) -> None:
    """In no group, also after a restart."""
    host.put("s", cron="0 * * * *")
    host.put_group("other")
    instant = near(host, 500)
    assert host.one("s").progress.n == 1, "it was sent ahead"
    recall(host)
    host.pause_one("s")
    if restarted:
        host.restart()
    assert (host.one("s").progress.n, host.one("s").progress.fired_ms) == (0, 0)
    host.advance(HOUR)
    assert [group.counts.living for group in host.topic.groups.values()] == [0, 0]
    host.resume_one("s")
    assert host.one("s").progress.next_ms == instant + 2 * HOUR


def test_a_resume_before_the_instant_loses_nothing(host: ScheduleHost) -> None:
    host.put("s", cron="0 * * * *")
    instant = near(host, 500)
    recall(host)
    host.pause_one("s")
    host.advance(200)
    host.resume_one("s")
    host.advance(HOUR + SECOND)
    assert host.take() == [f"s@{instant}", f"s@{instant + HOUR}"]
    assert host.one("s").progress.n == 2


def test_a_crash_between_the_two_frames_sends_no_instant_twice(host: ScheduleHost) -> None:
    """The schedule waits for the instant again while its message still lives."""
    host.put("s", cron="0 * * * *")
    instant = near(host, 500)
    with patch("delaylog.broker.engine.schedules.runner.cancel"):
        recall(host)
    host.restart()
    host.advance(HOUR)
    assert host.take() == [f"s@{instant}"]
    assert host.one("s").progress.n == 2, "the second is sent ahead"


def test_all_of_a_dense_schedule_come_back(host: ScheduleHost) -> None:
    """An interval of 100 ms has ten messages ahead; what is due is not taken back."""
    host.put("s", interval_ms=100)
    host.advance(5_050)
    due = host.one("s").progress.n
    recall(host)
    ahead = due - host.one("s").progress.n
    assert ahead in (9, 10)
    host.pause_one("s")
    host.advance(HOUR)
    assert len(host.take()) == due - ahead


def test_what_somebody_has_cancelled_has_fired(host: ScheduleHost) -> None:
    host.put("s", cron="0 * * * *")
    instant = near(host, 500)
    host.cancel([f"s@{instant}"])
    recall(host)
    assert host.one("s").progress.n == 1
    host.advance(HOUR + SECOND)
    assert host.take() == [f"s@{instant + HOUR}"]


@pytest.mark.parametrize("members", [{"overlap": "skip"}, {"overlap": "allow"}])
def test_nothing_is_done_where_nothing_is_ahead(
    host: ScheduleHost, members: dict[str, str]
) -> None:
    host.put("s", cron="0 * * * *", **members)
    near(host, 500 if members["overlap"] == "skip" else 5_000)
    end = host.engine.state.log.end_position
    recall(host)
    assert host.engine.state.log.end_position == end


def test_the_last_of_a_count_comes_back(host: ScheduleHost) -> None:
    """The schedule had ended with it, and runs again."""
    host.put("s", cron="0 * * * *", count=1)
    instant = near(host, 500)
    assert host.one("s").progress.next_ms == 0
    recall(host)
    assert host.one("s").progress.next_ms == instant
    host.advance(HOUR)
    assert host.take() == [f"s@{instant}"]


@pytest.mark.parametrize("form", [{"cron": "0 * * * *"}, {"interval_ms": HOUR}])
def test_what_fired_before_is_known_after_a_recall(
    host: ScheduleHost, form: dict[str, object]
) -> None:
    """Its message is open, so the instant is skipped by the new overlap."""
    host.put("s", **form, start_ms=0)
    first = near(host, 0)
    near(host, 500)
    assert host.one("s").progress.n == 2
    host.patch("s", overlap="skip")
    assert (host.one("s").progress.n, host.one("s").progress.fired_ms) == (1, first)
    host.advance(HOUR)
    assert host.take() == [f"s@{first}"]
    assert (host.one("s").progress.n, host.one("s").progress.skipped) == (1, 1)


def test_a_firing_by_hand_stays_the_newest(host: ScheduleHost) -> None:
    host.put("s", cron="0 * * * *")
    instant = near(host, 500)
    host.run_now("s")
    recall(host)
    assert host.one("s").progress.fired_ms == instant + 1
    assert host.one("s").progress.n == 1


def test_a_clock_that_was_set_back_takes_back_what_was_ahead_only(host: ScheduleHost) -> None:
    """A day of seconds has fired; a recall computes those of the last second, and takes one."""
    host.put("s", cron="* * * * * *")
    host.advance(20_000)
    assert len(host.take()) == 20
    fired = host.one("s").progress
    module = "delaylog.broker.engine.schedules.runner"
    with (
        patch(f"{module}.next_instant", wraps=next_instant) as computed,
        # It computes the instant to wait for, which is none of the recall's own.
        patch(f"{module}.begin_after", wraps=begin_after) as begun,
    ):
        recall_ahead(host.engine.state, host.topic, host.one("s"), host.now_ms - 86_400_000)
    assert computed.call_count - begun.call_count <= 2
    after = host.one("s").progress
    assert (after.n, after.next_ms) == (fired.n - 1, fired.last_ms)
    assert after.fired_ms == fired.last_ms - SECOND


@pytest.mark.parametrize("changes", [{}, {"overlap": "allow"}, {"count": 0}, {"zone": "Mars"}])
def test_an_equal_or_refused_change_takes_nothing_back(
    host: ScheduleHost, changes: dict[str, object]
) -> None:
    host.put("s", cron="0 * * * *")
    near(host, 500)
    end = host.engine.state.log.end_position
    try:
        host.patch("s", **changes)
    except ValueError:
        assert changes.keys() & {"count", "zone"}
    assert host.one("s").progress.n == 1
    assert host.engine.state.log.end_position == end


def test_a_count_is_judged_after_the_recall(host: ScheduleHost) -> None:
    """The only firing was sent ahead, and comes by the new definition."""
    host.put("s", cron="0 * * * *")
    instant = near(host, 500)
    host.put("s", b"new", cron="0 * * * *", count=1)
    host.advance(HOUR)
    assert host.take() == [f"s@{instant}"]
    with pytest.raises(BadRequestError, match="is used up"):
        host.put("s", cron="1 * * * *", count=1)


@pytest.mark.parametrize("policy", ["none", "latest", "all"])
def test_a_take_over_judges_what_the_leader_had_sent_ahead(
    host: ScheduleHost, member: Member, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader is gone half a second before the instant; a follower leads a minute after it."""
    host.put("s", cron="0 * * * *", catch_up=policy)
    instant = near(host, 500)
    assert host.one("s").progress.n == 1
    member.catch_up(host)
    told_ms, host.now_ms = host.now_ms, instant + 60 * SECOND
    member.lead(host.now_ms, told_ms)
    monkeypatch.setattr(host, "engine", member.engine)
    host.turn()
    assert host.take() == ([] if policy == "none" else [f"s@{instant}"])
    assert host.one("s").progress.skipped == (policy == "none")
    host.advance(HOUR)
    assert host.take() == [f"s@{instant + HOUR}"]


@pytest.mark.parametrize("policy", ["none", "latest"])
def test_a_clock_that_jumps_over_what_was_sent_ahead_judges_it(
    host: ScheduleHost, policy: str
) -> None:
    """As a machine that sleeps through the instant."""
    host.put("s", cron="0 * * * *", catch_up=policy)
    instant = near(host, 500)
    host.jump_ahead(2 * HOUR)
    wanted = {"none": [], "latest": [f"s@{instant + HOUR}"]}
    assert host.take() == wanted[policy]
