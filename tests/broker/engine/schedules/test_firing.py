"""Firings: one message an instant, in one frame with the next; overlap, outages, clock steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delaylog.broker.engine.schedules import commands
from delaylog.storage.layout import FrameKind
from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost, headers_of, kinds_since

MINUTE = 60_000
DAY = 24 * HOUR


def test_each_instant_fires_at_its_millisecond(host: ScheduleHost) -> None:
    """An interval of 1,234 ms, from now on."""
    host.put("tick", interval_ms=1_234, end_ms=host.now_ms + 4 * 1_234)
    start_ms = host.now_ms
    for n in range(4):
        assert host.take() == [f"tick@{start_ms + n * 1_234}"]
        host.advance(1_233)
        assert host.take() == []
        host.advance(1)
    host.advance(DAY)
    assert host.take() == []
    assert host.one("tick").progress.next_ms == 0


def test_a_firing_is_an_ordinary_message_before_it_is_due(host: ScheduleHost) -> None:
    """A second ahead it waits in the wheel, so its lateness is that of any message."""
    one = host.put("s", cron="0 9 * * *")
    instant = one.progress.next_ms
    host.advance(instant - 1_001 - host.now_ms)
    assert host.topic.default.counts.living == 0
    host.advance(1)
    assert host.topic.default.counts.living == 1
    assert host.receive() == []
    host.advance(1_000)
    (message,) = host.receive()
    assert (message.deliver_at_ms, host.now_ms) == (instant, instant)


def test_a_firing_has_the_fields_of_its_schedule(host: ScheduleHost) -> None:
    """Body, key and own headers with their words replaced, and the three headers."""
    own = {"about": "{n} of {schedule} at {due} {x}", "n": "mine"}
    host.put("daily", b"body {n}", cron="0 9 * * *", headers=own, key="k", priority=3)
    host.advance(DAY)
    (message,) = host.receive()
    instant = message.deliver_at_ms
    assert message.id == f"daily@{instant}"
    assert message.body == b"body {n}"
    assert headers_of(host, message.id) == {
        "schedule": "daily",
        "due": str(instant),
        "n": "mine",
        "about": f"1 of daily at {instant} {{x}}",
    }


def test_messages_and_next_instants_are_one_frame(host: ScheduleHost) -> None:
    """All schedules that are due together, of two topics."""
    host.put("a", cron="0 9 * * *")
    host.put("b", cron="0 9 * * *")
    other = host.engine.make_topic("other", host.now_ms)
    commands.put_schedule(host.engine.state, other, "c", {"cron": "0 9 * * *"}, b"", host.now_ms)
    host.turn()
    before = host.engine.state.log.end_position
    host.advance(DAY)
    assert kinds_since(host, before) == [FrameKind.MULTI]
    assert len(host.receive()) == 2
    assert other.default.counts.living == 1


def test_count_and_end_stop_a_schedule(host: ScheduleHost) -> None:
    """Firings by hand count too."""
    host.put("three", cron="* * * * *", count=3)
    host.run_now("three")
    host.advance(10 * MINUTE)
    assert len(host.take()) == 3
    assert host.one("three").progress.next_ms == 0
    with pytest.raises(commands.ConflictError, match="3 times"):
        host.run_now("three")


def test_jitter_delays_by_the_same_time_on_every_node(host: ScheduleHost) -> None:
    """100 schedules of one instant spread over ten minutes; a restart changes no due time."""
    for n in range(100):
        host.put(f"s{n}", cron="0 9 * * *", jitter_ms=10 * MINUTE)
    coming = {n: host.preview(f"s{n}", 1)[0] for n in range(100)}
    host.restart()
    host.advance(DAY)
    found = {message.id: message.deliver_at_ms for message in host.receive()}
    assert found == {f"s{n}@{one.instant_ms}": one.due_ms for n, one in coming.items()}
    assert len(set(found.values())) > 90


# ------------------------------------------------------------------ overlap


def test_skip_fires_when_the_last_message_has_ended(host: ScheduleHost) -> None:
    """Pending and leased messages skip an instant; an ack lets the next one fire."""
    host.put("s", cron="* * * * *", overlap="skip")
    host.advance(MINUTE)
    assert host.engine.state.by_number[1].default.counts.living == 1
    host.advance(5 * MINUTE)
    (message,) = host.receive(lease=HOUR)
    host.advance(5 * MINUTE)
    assert host.receive() == []
    host.ack([message])
    host.advance(MINUTE)
    assert len(host.take()) == 1
    assert host.one("s").progress.n == 2
    assert host.one("s").progress.skipped == 10


def test_buffer_one_fires_once_as_soon_as_the_last_message_ends(host: ScheduleHost) -> None:
    """Of five instants under a lease one waits; it is due at the ack, not at the next instant."""
    host.put("b", cron="*/10 * * * *", overlap="buffer_one")
    host.advance(10 * MINUTE)
    (message,) = host.receive(lease=2 * HOUR)
    host.advance(55 * MINUTE)
    waiting = host.one("b").progress.buffered_ms
    assert waiting == message.deliver_at_ms + 10 * MINUTE
    assert host.receive() == []
    host.ack([message])
    assert host.take() == [f"b@{waiting}"]
    assert host.one("b").progress.skipped == 4


def test_buffer_one_fires_when_the_last_message_expires(host: ScheduleHost) -> None:
    """Without a receive, the waiting instant fires at the end of the ttl, not at the next one."""
    host.put("b", cron="*/10 * * * *", overlap="buffer_one", ttl_ms=15 * MINUTE)
    host.advance(24 * MINUTE)
    waiting = host.one("b").progress.buffered_ms
    assert waiting
    host.advance(MINUTE)
    assert host.take() == [f"b@{waiting}"]


@pytest.mark.parametrize(
    ("outage_ms", "catch_up"), [(0, "latest"), (3 * HOUR + 30 * MINUTE, "none")]
)
def test_a_buffered_firing_survives_a_restart(
    host: ScheduleHost, outage_ms: int, catch_up: str
) -> None:
    """Its message ends while no leader looks; the next leader looks at its start. The instants of
    an outage are passed over; what waited before it fires at the ack.
    """
    host.put("b", cron="0 * * * *", overlap="buffer_one", catch_up=catch_up)
    host.advance(HOUR)
    (message,) = host.receive(lease=10 * HOUR)
    host.advance(HOUR)
    waiting = host.one("b").progress.buffered_ms
    assert waiting
    host.restart(outage_ms)
    assert host.take() == []
    host.ack([message])
    assert host.take() == [f"b@{waiting}"]


@pytest.mark.parametrize("how", ["purge", "drop_group", "cancel"])
def test_a_buffered_firing_follows_whatever_ends_the_message(host: ScheduleHost, how: str) -> None:
    """The schedule has no further instant that would look at it."""
    end_ms = host.now_ms + 3 * HOUR
    if how == "drop_group":
        host.configure(default_group=False)
        host.put_group("g")
        host.put_group("other")
    host.put("b", cron="0 * * * *", overlap="buffer_one", end_ms=end_ms)
    host.advance(4 * HOUR)
    waiting, last = host.one("b").progress.buffered_ms, host.one("b").progress.fired_ms
    assert waiting == last + HOUR
    if how == "purge":
        host.purge()
    elif how == "cancel":
        host.cancel([f"b@{last}"])
    else:
        host.drop_group("g")
        assert host.one("b").progress.n == 1
        host.drop_group("other")
    assert host.one("b").progress.n == 2
    assert host.one("b").progress.buffered_ms == 0


def test_a_message_that_has_expired_is_not_open(host: ScheduleHost) -> None:
    """There is no receive; each message lives for half a minute."""
    host.put("s", cron="* * * * *", overlap="skip", ttl_ms=30_000)
    host.advance(10 * MINUTE)
    assert host.one("s").progress.n == 10


def test_replace_ends_the_last_message(host: ScheduleHost) -> None:
    """A message that was not received, and one under a lease."""
    host.put("r", cron="* * * * *", overlap="replace")
    host.advance(3 * MINUTE)
    (message,) = host.receive(lease=HOUR)
    assert message.id == f"r@{host.one('r').progress.fired_ms}"
    host.advance(MINUTE)
    assert host.ack([message]) == 0
    assert len(host.take()) == 1
    assert host.one("r").progress.n == 4


# ------------------------------------------------------------------ outages and clocks


@pytest.mark.parametrize("hours", [3, 40 * 24])
@pytest.mark.parametrize(
    ("policy", "window", "fired"),
    [("none", None, 0), ("latest", None, 1), ("all", 2 * HOUR, 2), ("all", 50 * DAY, None)],
)
def test_an_outage_obeys_the_policy(
    host: ScheduleHost, hours: int, policy: str, window: int | None, fired: int | None
) -> None:
    """An hourly schedule; the process is gone for 3 hours and for 40 days."""
    members = {} if window is None else {"catch_up_window_ms": window}
    host.put("h", cron="0 * * * *", catch_up=policy, **members)
    first = host.one("h").progress.next_ms
    host.restart(hours * HOUR)
    ids = host.take()
    assert len(ids) == (hours if fired is None else fired)
    newest = first + (hours - 1) * HOUR
    assert ids == [f"h@{newest - k * HOUR}" for k in reversed(range(len(ids)))]
    host.advance(HOUR)
    assert host.take() == [f"h@{newest + HOUR}"]


@pytest.mark.parametrize("gone", [650, 10_000, 45_000, 200_000])
@pytest.mark.parametrize(
    ("policy", "window", "most"),
    [("none", HOUR, 0), ("latest", HOUR, 1), ("latest", 0, 0), ("all", 0, 0), ("all", HOUR, 200)],
)
@pytest.mark.parametrize(
    "timing",
    [
        {"interval_ms": 1_000},
        {"interval_ms": 250},
        {"cron": "* * * * * *"},
        {"cron": "*/10 * * * * *", "overlap": "skip"},
        {"interval_ms": 15_000, "jitter_ms": 5_000},
        {"rrule": "FREQ=DAILY;BYHOUR=0;BYMINUTE=" + ",".join(map(str, range(60)))},
    ],
    ids=lambda timing: "-".join(map(str, timing.values()))[:24],
)
def test_an_outage_of_seconds_is_one(
    host: ScheduleHost, timing: dict[str, object], policy: str, window: int, most: int, gone: int
) -> None:
    """No instant that came due without a leader is sent beyond its policy, also if it had been
    sent ahead; the others are counted, and the next one fires in time.
    """
    host.put("s", catch_up=policy, catch_up_window_ms=window, **timing)
    host.advance(20_300)
    host.take()
    before, down = host.one("s").progress, host.now_ms
    host.restart(gone)
    came = [host.due_of(each) for each in host.take()]
    assert all(down < due <= host.now_ms for due in came)
    rules = host.one("s").spec.rules
    if not (policy == "all" and rules.ahead_ms):
        # Under `all` a message that was sent ahead stays whatever the window.
        assert len(came) <= most * (4 if timing.get("interval_ms") == 250 else 1)
    after = host.one("s").progress
    if most == 0 and rules.ahead_ms and policy == "none" and "interval_ms" in timing:
        step = int(str(timing["interval_ms"]))
        assert after.skipped - before.skipped == host.now_ms // step - down // step
    host.advance(20_000)
    if timing.get("overlap") is None and "rrule" not in timing:
        assert host.take()


@pytest.mark.parametrize("policy", ["none", "latest"])
def test_an_instant_sent_ahead_of_an_outage_obeys_the_policy(
    host: ScheduleHost, policy: str
) -> None:
    """The process is gone half a second before the instant, whose message is in the log already."""
    host.put("h", cron="0 * * * *", catch_up=policy)
    instant = host.one("h").progress.next_ms
    host.advance(instant - 500 - host.now_ms)
    assert host.one("h").progress.n == 1
    host.restart(30 * MINUTE)
    assert host.take() == ([] if policy == "none" else [f"h@{instant}"])
    assert host.one("h").progress.skipped == (policy == "none")
    host.restart(2 * HOUR)
    newest = instant + 2 * HOUR
    assert host.take() == ([] if policy == "none" else [f"h@{newest}"])
    assert host.one("h").progress.skipped == (3 if policy == "none" else 1)
    host.advance(HOUR)
    assert host.take() == [f"h@{newest + HOUR}"]


def test_a_message_from_before_an_outage_stays(host: ScheduleHost) -> None:
    """It came due while a broker led, which the tick says, and was not received."""
    host.put("h", cron="0 * * * *", catch_up="none")
    instant = host.one("h").progress.next_ms
    host.advance(instant + 500 - host.now_ms)
    host.engine.write_changed_tick(host.now_ms)
    host.restart(30 * MINUTE)
    assert host.take() == [f"h@{instant}"]


@pytest.mark.parametrize("how", ["pause", "change", "count"])
def test_a_buffered_firing_that_is_given_up_is_counted(host: ScheduleHost, how: str) -> None:
    """It was counted as neither fired nor skipped."""
    host.put("b", cron="0 * * * *", overlap="buffer_one", count=2)
    host.advance(2 * HOUR)
    assert host.one("b").progress.buffered_ms
    if how == "pause":
        host.pause_one("b")
    elif how == "change":
        host.patch("b", overlap="skip")
    else:
        # A firing by hand was the last one of the count.
        host.run_now("b")
        host.ack(host.receive())
        host.advance(HOUR)
        assert host.receive() == []
        assert (host.one("b").progress.n, host.one("b").progress.next_ms) == (2, 0)
    progress = host.one("b").progress
    assert (progress.buffered_ms, progress.skipped) == (0, 1)


def test_a_busy_leader_misses_nothing(host: ScheduleHost) -> None:
    """Time passes in one step of a day without a restart: that is no outage."""
    host.put("h", cron="0 * * * *", catch_up="none")
    host.now_ms += DAY
    host.turn()
    assert len(host.take()) == 24


def test_a_clock_that_jumps_ahead_is_an_outage(host: ScheduleHost) -> None:
    """As when a machine has slept."""
    host.put("h", cron="0 * * * *", catch_up="latest")
    host.jump_ahead(DAY)
    assert len(host.take()) == 1


def test_a_clock_that_is_set_back_repeats_no_instant(host: ScheduleHost) -> None:
    """The hours that come again fire nothing, the hours after them fire as ever."""
    host.put("h", cron="0 * * * *", catch_up="none")
    host.advance(10 * HOUR)
    assert len(host.take()) == 10
    host.set_back(5 * HOUR)
    host.advance(5 * HOUR)
    assert host.take() == []
    host.advance(3 * HOUR)
    assert len(host.take()) == 3


def test_a_full_disk_delays_firings(host: ScheduleHost) -> None:
    """Nothing fires below the reserve, and all of it when there is room, under `none` too."""
    host.put("h", cron="0 * * * *", catch_up="none")
    limits = host.engine.state.limits
    host.engine.state.limits = replace(limits, disk_reserve_bytes=1 << 53)
    host.now_ms += 5 * HOUR
    host.turn()
    assert host.take() == []
    host.engine.state.limits = limits
    host.advance(1_000)
    assert len(host.take()) == 5


def test_a_firing_needs_neither_quota_nor_room_for_its_id(host: ScheduleHost) -> None:
    """An id that a living message has is not sent again: the instant has its message."""
    one = host.put("s", cron="0 9 * * *")
    instant = one.progress.next_ms
    host.send([b"by hand"], at=instant, ids=[f"s@{instant}"])
    host.configure(quota={"pending": 1})
    host.advance(DAY)
    assert [message.body for message in host.receive(lease=10 * DAY)] == [b"by hand"]
    host.advance(DAY)
    assert len(host.receive()) == 1


def test_many_instants_of_a_jump_are_fired_in_order(host: ScheduleHost) -> None:
    """More than a slice of two schedules in one turn: the order of the log is that of due times."""
    host.put("a", interval_ms=1_000)
    host.put("b", interval_ms=1_500)
    host.now_ms += 300_000
    host.turn()
    dues = [int(message.id.split("@")[1]) for message in host.receive(10_000)]
    assert len(dues) == 301 + 201
    assert dues == sorted(dues)
