"""Another release of tzdata: next instants are computed anew, once, and never by an older one."""

from __future__ import annotations

from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.schedules.test_instants import zones_where

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


def test_a_change_of_an_interrupted_leader_begins_again(host: ScheduleHost) -> None:
    """The release is in the log when all is recomputed, not before."""
    for n in range(200):
        host.put(f"s{n}", cron="0 9 * * *", zone="Europe/Berlin")
    old = host.engine.state.schedules.zones
    runner = host.engine.schedules
    newer = zones_where("Asia/Tokyo")
    runner._zones = newer
    runner.start(host.now_ms)
    host.engine.run_due(host.now_ms)
    assert host.engine.state.schedules.zones == old
    host.use_zones(newer)
    assert host.engine.state.schedules.zones == "2099a"
    assert len({host.one(f"s{n}").progress.next_ms for n in range(200)}) == 1


def test_what_another_leader_has_computed_is_left_alone(host: ScheduleHost) -> None:
    """A leadership ended in the middle; the next one of this node finds the work done."""
    for n in range(200):
        host.put(f"s{n}", cron="0 9 * * *", zone="Europe/Berlin")
    runner, table = host.engine.schedules, host.engine.state.schedules
    runner._zones = zones_where("Asia/Tokyo")
    runner.start(host.now_ms)
    host.engine.run_due(host.now_ms)
    table.apply({"zones": "2099a"}, 0)
    end = host.engine.state.log.end_position
    runner.start(host.now_ms)
    host.turn()
    assert host.engine.state.log.end_position == end


def test_what_is_computed_fires_before_the_rest_is(host: ScheduleHost) -> None:
    """In the order of due times: the others may be a million."""
    for n in range(200):
        host.put(f"s{n}", cron="0 9 * * *", zone="Europe/Berlin")
    host.put("soon", interval_ms=60_000)
    old = host.engine.state.schedules.zones
    runner = host.engine.schedules
    runner._zones = zones_where("Asia/Tokyo")
    host.now_ms += 60_000
    runner.start(host.now_ms)
    host.engine.run_due(host.now_ms)
    assert host.engine.state.schedules.zones == old
    assert host.one("soon").progress.n == 2
    host.turn()
    assert host.engine.state.schedules.zones == "2099a"
    assert len({host.one(f"s{n}").progress.next_ms for n in range(200)}) == 1
