"""Calls about schedules: what they store, when the next instant is after each, what is refused."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    EngineError,
    QuotaRefusal,
    UnknownError,
)
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.schedules import commands
from delaylog.broker.engine.topics import idle
from delaylog.contract.members import MemberError
from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost

DAY = 24 * HOUR
UNPRINTABLE = (" ", " a", "a ", "a\u202eb", "a\u2028b", "\ufeff", "a\u00a0b", "\u200b")
"""Names that look like others, or like nothing."""


def test_an_equal_put_changes_nothing(host: ScheduleHost) -> None:
    """No frame, no new anchor of an interval, although time has passed."""
    host.put("s", b"x", interval_ms=1_000, tags=["a"])
    host.advance(1_500)
    end = host.engine.state.log.end_position
    one = host.put("s", b"x", interval_ms=1_000, tags=["a"])
    assert host.engine.state.log.end_position == end
    # The third is a message already, a second ahead.
    assert one.progress.n == 3
    assert host.put("s", b"y", interval_ms=1_000, tags=["a"]).progress.n == 3


def test_a_patch_changes_what_it_names(host: ScheduleHost) -> None:
    """Members go by None; another form of timing takes the place of the present one."""
    host.put("s", b"x", cron="0 9 * * *", zone="Europe/Berlin", key="k", overlap="skip")
    before = host.one("s").progress
    one = host.patch("s", body=b"y", key=None, priority=2)
    assert commands.members_of(one) == {
        "cron": "0 9 * * *",
        "zone": "Europe/Berlin",
        "gap": "next",
        "fold": "first",
        "jitter_ms": 0,
        "catch_up": "latest",
        "catch_up_window_ms": DAY,
        "overlap": "skip",
        "priority": 2,
    }
    assert one.progress == before
    one = host.patch("s", interval_ms=5_000, start_ms=host.now_ms)
    assert one.spec.timing.cron is None
    assert one.progress.next_ms == host.now_ms + 5_000
    assert one.progress.n == 1


def test_a_change_of_the_timing_never_fires_an_instant_twice(host: ScheduleHost) -> None:
    """From each minute to each second and back, at the very instant."""
    host.put("s", cron="* * * * *")
    host.advance(60_000 - host.now_ms % 60_000)
    first = host.take()
    assert first == [f"s@{host.now_ms}"]
    host.patch("s", cron="* * * * * *")
    assert host.take() == []
    host.advance(1_000)
    assert host.take() == [f"s@{host.now_ms}"]
    # The next one is a message already, a second ahead.
    host.patch("s", cron="*/1 * * * * *")
    host.advance(1_000)
    assert host.take() == [f"s@{host.now_ms}"]


def test_a_pause_has_a_note_and_passes_instants_over(host: ScheduleHost) -> None:
    """Nothing fires, also of an outage; after it the next instant is the first from then on."""
    host.put("s", cron="0 * * * *", catch_up="all", catch_up_window_ms=DAY)
    host.pause_one("s", "audit")
    host.restart(5 * HOUR)
    assert host.one("s").note == "audit"
    host.advance(5 * HOUR)
    assert host.take() == []
    assert len(host.preview("s", 3)) == 3
    host.resume_one("s")
    assert not host.one("s").paused
    assert host.take() == []
    host.advance(HOUR)
    assert len(host.take()) == 1


def test_run_now_is_a_firing_beside_the_instants(host: ScheduleHost) -> None:
    """Also while it is paused, or its last message is open."""
    host.put("s", cron="0 9 * * *", overlap="skip")
    instant = host.one("s").progress.next_ms
    assert host.run_now("s") == f"s@{host.now_ms}"
    host.pause_one("s")
    host.advance(1)
    host.run_now("s")
    assert len(host.take()) == 2
    assert host.one("s").progress.n == 2
    host.resume_one("s")
    assert host.one("s").progress.next_ms == instant


def test_firings_by_hand_have_ids_of_their_own(host: ScheduleHost) -> None:
    """Several in one millisecond, which is an instant of the timing, too."""
    host.put("s", cron="* * * * * *")
    host.advance(1_000 - host.now_ms % 1_000)
    ids = {host.run_now("s") for _ in range(3)}
    assert len(ids) == 3
    host.advance(10_000)
    assert ids < set(host.take())
    assert len(host.fired) == 3 + 11


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_another_recurrence_begins_behind_firings_by_hand(host: ScheduleHost, overlap: str) -> None:
    """It counts from now, and now, where the clock may stand still, has fired by hand."""
    host.put("s", cron="0 9 * * *", overlap=overlap)
    ids = {host.run_now("s") for _ in range(3)}
    assert set(host.take()) == ids
    host.patch("s", interval_ms=1)
    host.advance(10)
    assert not ids & set(host.take())
    assert host.fired


def test_a_schedule_of_each_millisecond_is_not_fired_by_hand(host: ScheduleHost) -> None:
    """There is no instant left for it."""
    host.put("s", interval_ms=1)
    with pytest.raises(ConflictError, match="fires all the time"):
        host.run_now("s")


def test_a_dropped_schedule_fires_no_more(host: ScheduleHost) -> None:
    """Its pending message stays; its name begins anew."""
    host.put("s", cron="* * * * *")
    host.advance(60_000)
    host.drop_one("s")
    host.advance(HOUR)
    assert len(host.take()) == 1
    with pytest.raises(UnknownError, match="has no schedule 's'"):
        host.one("s")
    assert host.put("s", cron="* * * * *").progress.n == 0


def test_a_topic_goes_with_its_schedules_and_stays_for_them(host: ScheduleHost) -> None:
    """An idle topic with a schedule is in use."""
    host.put("s", cron="0 0 1 1 *")
    host.engine.state.topics["default", "t"].used_ms = 1
    host.advance(DAY)
    assert idle.retire_unused(host.engine.state, host.now_ms) == 0
    host.drop_topic()
    assert len(host.engine.state.schedules) == 0
    host.restart()
    assert len(host.engine.state.schedules) == 0
    host.advance(400 * DAY)


def test_lists_are_in_pages(host: ScheduleHost) -> None:
    """Each schedule keeps its place, also over a change and a restart; a new one may fill a gap."""
    for name in ("c", "a", "of another topic", "b", "d"):
        host.topic_name = "other" if "topic" in name else "t"
        host.put(name, cron="0 9 * * *")
    assert host.list_names(limit=3) == ["c", "a", "b"]
    after = host.one("b").number
    host.put("a", cron="0 8 * * *")
    host.drop_one("b")
    assert host.list_names(after=after) == ["d"]
    host.restart()
    host.put("e", cron="0 9 * * *")
    assert host.list_names() == ["c", "a", "e", "d"]
    assert host.list_names(after=host.one("d").number) == []


def test_a_preview_is_what_will_fire(host: ScheduleHost) -> None:
    """Up to the count."""
    host.put("s", cron="0 9 * * *", zone="Europe/Berlin", jitter_ms=HOUR, count=5)
    coming = host.preview("s", 100)
    assert len(coming) == 5
    host.advance(10 * DAY)
    found = [(message.id, message.deliver_at_ms) for message in host.receive()]
    assert found == [(f"s@{one.instant_ms}", one.due_ms) for one in coming]
    with pytest.raises(BadRequestError, match="from 1 to 1000, not 0"):
        host.preview("s", 0)


def test_a_preview_from_a_later_time_counts_those_before(host: ScheduleHost) -> None:
    host.put("s", cron="0 9 * * *", count=1_000)
    first = host.preview("s", 1)[0].instant_ms
    for days, left in ((0, 5), (5, 5), (997, 3), (1_000, 0), (7_000, 0)):
        wanted = commands.Instants(5, first + days * DAY)
        assert len(list(commands.previewed(host.one("s"), wanted, host.now_ms))) == left
    far = commands.Instants(1, first + 8_000 * DAY)
    with pytest.raises(BadRequestError, match="over 7305 days after the next instant"):
        list(commands.previewed(host.one("s"), far, host.now_ms))


@pytest.mark.parametrize(
    ("name", "members", "field"),
    [
        ("", {"cron": "* * * * *"}, "schedule"),
        ("~s", {"cron": "* * * * *"}, "schedule"),
        ("x" * 201, {"cron": "* * * * *"}, "schedule"),
        *((name, {"cron": "* * * * *"}, "schedule") for name in UNPRINTABLE),
        ("s", {"cron": "* * * *"}, "cron"),
        ("s", {"cron": "* * * * *", "overlap": "never"}, "overlap"),
        ("s", {"cron": "* * * * *", "id": "mine"}, "id"),
        ("s", {"cron": "* * * * *", "headers": {"a": "b" * 16_380}}, "headers"),
        ("s", {"cron": "* * * * *", "key": "k" * 256}, "key"),
        ("s", {"cron": "0 9 * * *", "end_ms": 10**12}, "cron"),
        ("s", {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rrule"),
        ("s", {"cron": "0 0 * 2 MON#5"}, "cron"),
        ("s", {"interval_ms": 1, "catch_up": "all"}, "catch_up_window_ms"),
    ],
)
def test_a_wrong_put_names_its_member_and_changes_nothing(
    host: ScheduleHost, name: str, members: dict[str, object], field: str
) -> None:
    """No frame, no schedule."""
    host.topic  # noqa: B018 (it is created)
    end = host.engine.state.log.end_position
    with pytest.raises((EngineError, MemberError)) as error:
        host.put(name, **members)
    assert error.value.field == field  # type: ignore[attr-defined]
    assert host.engine.state.log.end_position == end
    assert len(host.engine.state.schedules) == 0


def test_a_body_and_the_number_of_schedules_have_limits(host: ScheduleHost) -> None:
    """Each refusal names its limit."""
    host.engine.state.limits = Limits(schedules_max=1, body_bytes_max=10)
    with pytest.raises(EngineError, match="at most 10 bytes, not 11"):
        host.put("s", b"x" * 11, cron="* * * * *")
    host.put("s", cron="* * * * *")
    with pytest.raises(QuotaRefusal, match="schedules_max is 1"):
        host.put("other", cron="* * * * *")
    host.put("s", b"changed", cron="* * * * *")


def test_a_rule_without_a_start_fires_at_full_minutes(host: ScheduleHost) -> None:
    """Its anchor is the midnight of its zone, so the second of the put shows nowhere."""
    host.advance(12_345)
    one = host.put("s", rrule="FREQ=DAILY;BYHOUR=9", zone="Asia/Kolkata")
    nine_ms = 9 * HOUR - 5 * HOUR - HOUR // 2
    assert one.progress.next_ms % DAY == nine_ms
    assert one.progress.next_ms > host.now_ms >= (one.spec.timing.start_ms or 0)
    # Put again on another day, it is the same; another zone has another midnight.
    host.advance(2 * DAY)
    again = host.put("s", rrule="FREQ=DAILY;BYHOUR=9", zone="Asia/Kolkata")
    assert again.spec == one.spec
    assert host.put("s", rrule="FREQ=DAILY;BYHOUR=9").progress.next_ms % DAY == 9 * HOUR


def test_a_change_to_another_form_counts_from_now(host: ScheduleHost) -> None:
    """As a put does, whichever form there was; a start that is to come stays."""
    host.put("s", cron="0 9 * * *")
    host.advance(1_234)
    one = host.patch("s", interval_ms=60_000)
    assert one.spec.timing.start_ms == host.now_ms
    one = host.patch("s", rrule="FREQ=DAILY")
    assert one.progress.next_ms % DAY == 0
    later_ms = host.now_ms + DAY
    host.patch("s", start_ms=later_ms)
    assert host.patch("s", interval_ms=5_000).progress.next_ms == later_ms
    # Taken away, it is the default again.
    assert host.patch("s", start_ms=None).spec.timing.start_ms == host.now_ms


def test_a_count_that_is_used_up_is_named(host: ScheduleHost) -> None:
    """A different put goes on counting: `n` belongs to the name."""
    host.put("s", interval_ms=1_000, count=2)
    host.advance(5_000)
    with pytest.raises(BadRequestError, match=r"count 2 is used up: .* fired 2 times") as error:
        host.put("s", interval_ms=2_000, count=2)
    assert error.value.field == "count"
    assert host.put("s", interval_ms=60_000, count=3).progress.next_ms > host.now_ms


def test_a_second_pause_keeps_the_note(host: ScheduleHost) -> None:
    """Unless it has one of its own."""
    host.put("s", cron="0 9 * * *")
    host.pause_one("s", "audit")
    host.pause_one("s")
    assert host.one("s").note == "audit"
    host.pause_one("s", "move")
    assert host.one("s").note == "move"
    host.resume_one("s")
    host.pause_one("s")
    assert host.one("s").note == ""


@pytest.mark.parametrize("member", [{"zone": "UTC"}, {"gap": "skip"}, {"fold": "both"}])
def test_an_interval_has_no_zone(host: ScheduleHost, member: dict[str, str]) -> None:
    """Refused where a caller says it; a change to an interval drops what cron had."""
    (name,) = member
    with pytest.raises(BadRequestError, match="means nothing with interval_ms") as error:
        host.put("s", interval_ms=5_000, **member)
    assert error.value.field == name
    host.put("s", cron="0 9 * * *", **member)
    assert host.patch("s", interval_ms=5_000).spec.timing.zone == "UTC"
    with pytest.raises(BadRequestError, match="means nothing"):
        host.patch("s", **member)
    host.patch("s", cron="0 9 * * *", **member)


@pytest.mark.parametrize("changes", [{"jitter_ms": 600_001}, {"count": 9}, {"end_ms": 10**13}])
def test_a_change_around_the_recurrence_keeps_an_instant_that_is_not_due(
    host: ScheduleHost, changes: dict[str, int]
) -> None:
    """Jitter makes it due minutes after its instant, and the change comes in between."""
    host.put("s", cron="0 * * * *", jitter_ms=600_000)
    progress = host.one("s").progress
    assert progress.due_ms > progress.next_ms + 2_000, "choose another name"
    host.advance(progress.next_ms + 1 - host.now_ms)
    one = host.patch("s", **changes)
    assert one.progress.next_ms == progress.next_ms
    host.advance(HOUR // 2)
    assert host.take() == [f"s@{progress.next_ms}"]


@pytest.mark.parametrize(("changes", "left"), [({"count": 200}, 180), ({"interval_ms": 61_000}, 0)])
def test_a_change_keeps_a_backlog_unless_it_changes_the_recurrence(
    host: ScheduleHost, changes: dict[str, int], left: int
) -> None:
    """Three hours in which nothing could fire, as on a full disk."""
    host.put("s", interval_ms=60_000, start_ms=host.now_ms + 60_000)
    host.now_ms += 3 * HOUR
    host.patch("s", **changes)
    host.turn()
    # One more is sent ahead where it is a second before it.
    assert len(host.take()) == left


def test_an_end_before_the_next_instant_is_refused(host: ScheduleHost) -> None:
    """Also where the recurrence stays; a later one that had ended counts from now."""
    one = host.put("s", cron="* * * * *", count=1)
    with pytest.raises(BadRequestError, match="never fires from now on"):
        host.patch("s", end_ms=one.progress.next_ms)
    host.advance(HOUR)
    assert len(host.take()) == 1
    assert host.patch("s", count=9).progress.next_ms > host.now_ms
    host.advance(60_000)
    assert len(host.take()) == 1


def test_a_backfill_ends_when_its_schedule_is_dropped(host: ScheduleHost) -> None:
    """The frames before that stay."""
    start = host.now_ms - 200 * HOUR
    one = host.put("s", b"x", interval_ms=HOUR, start_ms=start)
    state = host.engine.state
    firings, _ = commands.plan_backfill(
        state, one, from_ms=start, until_ms=host.now_ms, rate=None, now_ms=host.now_ms
    )
    steps = commands.send_backfill(state, firings, host.now_ms)
    next(steps)
    commands.drop_schedule(state, one, host.now_ms)
    with pytest.raises(ConflictError, match="changed meanwhile; 64 messages were sent"):
        next(steps)
