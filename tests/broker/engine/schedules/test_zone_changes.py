"""Another release of tzdata: next instants are computed anew, once, and never by an older one."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.broker.engine.schedules import commands
from delaylog.broker.engine.schedules.commands import plan_backfill
from delaylog.broker.engine.schedules.runner import recall_ahead
from delaylog.broker.engine.views.counts import Firings
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.members import MemberError
from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.rules.schedules.test_instants import zones_where, zones_without

DAY = 24 * HOUR


def test_a_newer_release_moves_next_instants_before_anything_fires(host: ScheduleHost) -> None:
    """Berlin gets the clocks of Tokyo; 200 schedules are more than a slice."""
    for n in range(200):
        host.put(f"s{n}", cron="0 9 * * *", zone="Europe/Berlin")
    host.put("kept", cron="0 9 * * *", zone="Asia/Tokyo")
    host.put("elapsed", interval_ms=DAY)
    before = {n: host.one(f"s{n}").progress.next_ms for n in range(200)}
    kept = host.one("kept").progress
    host.use_zones(zones_where("Asia/Tokyo"))
    for n in range(200):
        assert (host.one(f"s{n}").progress.next_ms - before[n]) % DAY == 17 * HOUR
    assert host.one("kept").progress == kept
    table = host.engine.state.schedules
    assert (table.zones, table.mixed) == ("2099a", False)
    host.advance(DAY)
    # The interval fired at its start, too.
    assert len(host.take()) == 203
    host.checkpoint()
    host.restart()
    assert host.engine.state.schedules.zones == "2099a"


def test_an_older_release_recomputes_nothing_and_a_newer_one_checks_its_work(
    host: ScheduleHost,
) -> None:
    """The log has the newer release; an older leader fires by its own data until the next one."""
    host.put("s", cron="0 9 * * *", zone="Europe/Berlin")
    host.use_zones(zones_where("Asia/Tokyo"))
    pending = host.one("s").progress.next_ms
    older = zones_where("UTC", "2000a")
    host.use_zones(older)
    assert host.one("s").progress.next_ms == pending
    table = host.engine.state.schedules
    assert (table.zones, table.mixed) == ("2099a", False)
    host.advance(pending - host.now_ms)
    assert host.take() == [f"s@{pending}"]
    assert (table.zones, table.mixed) == ("2099a", True)
    assert host.one("s").progress.next_ms != pending + DAY
    host.use_zones(zones_where("Asia/Tokyo"))
    assert (table.zones, table.mixed) == ("2099a", False)
    assert host.one("s").progress.next_ms == pending + DAY


def test_a_wall_time_fires_once_over_a_change(host: ScheduleHost) -> None:
    """09:00 in Berlin has fired by summer time, and comes again by the new data an hour later."""
    host.put("s", cron="0 9 * * *", zone="Europe/Berlin")
    host.advance(host.one("s").progress.next_ms - host.now_ms)
    fired = host.now_ms
    assert len(host.take()) == 1
    host.use_zones(zones_where("Etc/GMT-1"))
    assert host.one("s").progress.next_ms == fired + DAY + HOUR


@pytest.fixture
def interrupted(host: ScheduleHost) -> ScheduleHost:
    """A leader that has computed a slice of 200 schedules by a newer release."""
    for n in range(200):
        host.put(f"s{n}", cron="0 9 * * *", zone="Europe/Berlin")
    host.put("soon", interval_ms=60_000)
    old = host.engine.state.schedules.zones
    runner = host.engine.schedules
    runner._zones = zones_where("Asia/Tokyo")
    host.now_ms += 60_000
    runner.start(host.now_ms)
    host.engine.run_due(host.now_ms)
    assert host.engine.state.schedules.zones == old, "it is in the log when all is computed"
    return host


@pytest.mark.parametrize("again", [False, True])
def test_what_is_computed_fires_before_the_rest_is(interrupted: ScheduleHost, again: bool) -> None:
    """In the order of due times: the others may be a million. Another leader begins again."""
    host = interrupted
    assert host.one("soon").progress.n == 2
    if again:
        host.use_zones(zones_where("Asia/Tokyo"))
    host.turn()
    assert host.engine.state.schedules.zones == "2099a"
    assert len({host.one(f"s{n}").progress.next_ms for n in range(200)}) == 1


def test_what_another_leader_has_computed_is_left_alone(interrupted: ScheduleHost) -> None:
    """A leadership ended in the middle; the next one of this node finds the work done."""
    host = interrupted
    host.engine.state.schedules.apply({"zones": "2099a"}, 0)
    end = host.engine.state.log.end_position
    host.engine.schedules.start(host.now_ms)
    host.turn()
    assert host.engine.state.log.end_position == end


OLDER, NEWER = (zones_without("Europe/Berlin", version=each) for each in ("2000a", "2099a"))
"""Before the zone came, and after it went."""


@pytest.mark.parametrize("zones", [OLDER, NEWER])
@pytest.mark.parametrize("form", [{"cron": "0 * * * *"}, {"rrule": "FREQ=DAILY;BYHOUR=9"}])
def test_a_release_without_a_zone_waits_with_its_schedules(
    host: ScheduleHost, zones: Zones, form: dict[str, str]
) -> None:
    """The others fire. The leader is idle between their instants, and says once what it lacks."""
    for n in range(3):
        host.put(f"s{n}", **form, zone="Europe/Berlin", catch_up="all")
    host.put("held", cron="0 * * * *", zone="Europe/Berlin", overlap="buffer_one", jitter_ms=9)
    host.put("other", cron="0 * * * *")
    host.use_zones(zones)
    before = {name: host.one(name).progress for name in ("s0", "s1", "s2", "held")}
    missed = [each.instant_ms for each in host.preview("s0", 200)]
    host.advance(DAY)
    assert {each.partition("@")[0] for each in host.take()} == {"other"}
    assert {name: host.one(name).progress for name in before} == before
    wake_ms = host.engine.schedules.next_wake_ms()
    assert wake_ms is not None
    assert wake_ms > host.now_ms
    assert host.engine.schedules.warnings == [zones.lack("Europe/Berlin")]
    # With the zone the time without it was an outage.
    host.use_zones(PACKAGED)
    ids = set(host.take())
    assert {f"s0@{at}" for at in missed if at <= host.now_ms} <= ids
    assert any(each.startswith("held@") for each in ids)
    host.advance(DAY)
    assert any(each.startswith("s0@") for each in host.take())


def test_calls_name_the_zone_that_lacks(host: ScheduleHost) -> None:
    """What needs its instants is refused; a pause, a deletion and a forecast are not."""
    state, zones = host.engine.state, NEWER
    host.put("s", cron="0 9 * * *", zone="Europe/Berlin", jitter_ms=5)
    one = host.one("s")
    for call in (
        lambda: commands.run_now(state, one, host.now_ms, zones),
        lambda: next(commands.previewed(one, commands.Instants(2), host.now_ms, zones)),
        lambda: plan_backfill(
            state, one, from_ms=0, until_ms=9, rate=None, now_ms=host.now_ms, zones=zones
        ),
    ):
        with pytest.raises(MemberError, match="2099a of this broker has no zone 'Europe/Berlin'"):
            call()
    assert recall_ahead(state, host.topic, one, host.now_ms, zones) is one
    host.pause_one("s")
    with pytest.raises(MemberError, match="has no zone"):
        commands.resume_schedule(state, host.one("s"), host.now_ms, zones)
    host.resume_one("s")
    edges = np.array([host.now_ms, host.now_ms + DAY])
    counted = Firings(state, host.topic, edges, host.now_ms)
    for _ in counted.work(zones):
        pass
    assert (counted.schedules, counted.counts.sum()) == (0, 0)
