"""Exactly one message an instant: a month of 1,000 schedules, power cuts, restarts, a take-over.

The model is the pure function: a list of the instants of each schedule up to now. Nothing is acked,
so at the end each message that was ever made is there.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.schedules import runner
from delaylog.broker.engine.send.merge import Merge
from delaylog.contract.calls.schedules import PERIOD_MS_MAX
from delaylog.storage.layout import FrameKind
from tests.broker.engine.host import HOUR, START_MS
from tests.broker.engine.member import Member
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.rules.schedules.walk import walk
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk

MINUTE = 60_000
DAY = 24 * HOUR
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")
ALL = {"catch_up": "all", "catch_up_window_ms": PERIOD_MS_MAX}


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 3_000)


def some_timing(random: Random) -> dict[str, Any]:
    """A timing of any form, which fires a few times a day at most."""
    zone = {"zone": random.choice(ZONES)}
    minute, hour = random.randrange(60), random.randrange(24)
    return random.choice(
        [
            {"cron": f"{minute} {hour} * * {random.randrange(7)}", **zone},
            {"cron": f"{random.randrange(60)} {minute} {hour} * * *", **zone, "fold": "both"},
            {"cron": f"{minute} */{random.randrange(3, 12)} * * *", **zone},
            {"interval_ms": random.randrange(3 * HOUR, 90 * HOUR)},
            {"rrule": f"FREQ=DAILY;BYHOUR={hour};INTERVAL={random.randrange(1, 4)}", **zone},
        ]
    )


def instants_until(host: ScheduleHost, names: list[str], begun_ms: int) -> Counter[str]:
    """The ids of the model."""
    wanted: Counter[str] = Counter()
    for name in names:
        found = walk(host.one(name).spec.timing, begun_ms - 1, host.now_ms + 1)
        wanted.update(f"{name}@{at}" for at in found)
    return wanted


@pytest.mark.long
def test_a_month_of_a_thousand_schedules(host: ScheduleHost) -> None:
    """Across changes of clocks, in steps of an hour; what is received is acked."""
    random, begun_ms = Random(1), host.now_ms
    names = [f"s{n}" for n in range(1_000)]
    for name in names:
        host.put(name, **some_timing(random))
    for _ in range(31 * 24):
        host.now_ms += HOUR
        host.turn()
        host.take()
        if random.random() < 0.01:
            random.choice((host.checkpoint, host.flush, host.restart))()
    assert Counter(host.fired.keys()) == instants_until(host, names, begun_ms)
    assert len(host.fired) > 25_000


def cut_power(seed: int) -> tuple[Counter[str], Counter[str], int]:
    """Firings under power cuts at any disk operation of releases, checkpoints and splits.

    Returns the ids of the model, those found, and the number of cuts.
    """
    random = Random(seed)
    limits = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
    host = ScheduleHost(Path("data"), START_MS + 1, limits=limits, fs=FakeDisk())
    begun_ms = host.now_ms
    names = [f"s{n}" for n in range(12)]
    for name in names:
        host.put(name, **some_timing(random), **ALL)
    host.put("fast", interval_ms=7 * MINUTE, **ALL)
    cuts = 0
    for _ in range(25):
        disk: Any = host.fs
        disk.crash_at = disk.count + random.randrange(1, 80)
        try:
            host.advance(random.choice((MINUTE, HOUR, 9 * HOUR)))
            random.choice((host.checkpoint, host.flush, host.far_work, lambda: None))()
            disk.crash_at = 0
        except DiskCrashed:
            cuts += 1
            again = random.choice((0, 0, 3, 8))
            host.lose_power(random.choice(SURVIVALS), seed + cuts, again_at=again)
    found = Counter(message.id for message in host.receive(100_000, lease=10 * HOUR))
    wanted = instants_until(host, [*names, "fast"], begun_ms)
    host.close()
    return wanted, found, cuts


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("seed", range(tries(30)))
def test_power_cuts_neither_skip_nor_repeat(seed: int) -> None:
    """Every instant has its message, and one only."""
    wanted, found, cuts = cut_power(seed)
    assert found == wanted
    assert cuts > 3


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("first", [FrameKind.SEND, FrameKind.SCHEDULE])
def test_the_search_finds_a_firing_of_two_frames(
    first: FrameKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: the message and the next instant are two frames, in either order."""
    whole = runner.append_firings

    def apart(
        state: Any, firings: list[Any], moved: dict[int, Any], now_ms: int, *, by: str
    ) -> int:
        before = {n: state.schedules.get(n).progress for n in moved}
        if first is FrameKind.SEND:
            # The frame says that the schedules are where they were.
            whole(state, firings, before, now_ms, by=by)
            return whole(state, [], moved, now_ms, by=by)
        whole(state, [], moved, now_ms, by=by)
        return whole(state, firings, moved, now_ms, by=by)

    monkeypatch.setattr(runner, "append_firings", apart)
    # A message that is there is not sent again: its id must not hide the fault.
    monkeypatch.setattr(runner, "merge_ids", lambda *_: Merge())
    differences = 0
    for seed in range(40):
        wanted, found, _ = cut_power(seed)
        differences += wanted != found
        if differences:
            break
    assert differences


@pytest.mark.parametrize("seed", range(tries(6)))
def test_a_member_goes_on_where_the_leader_was(
    host: ScheduleHost, member: Member, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that has part of the log, restarts and checkpoints, then takes over."""
    random, begun_ms = Random(seed), host.now_ms
    names = [f"s{n}" for n in range(40)]
    for name in names:
        host.put(name, **some_timing(random), **ALL)
    for _ in range(6):
        host.advance(random.randrange(20 * HOUR))
        member.catch_up(host)
        if random.random() < 0.5:
            work = member.engine.upkeep.checkpoint(lambda: member.engine.state.leader_time_ms)
            member.engine.run_inline(work)
            member.close()
            member.open()
            member.catch_up(host)
    # The leader goes on for a while, and nobody will ever see that.
    lost = host.engine.state.log.end_position
    now_ms = host.now_ms
    host.advance(DAY)
    assert host.engine.state.log.end_position > lost
    host.now_ms = now_ms + HOUR
    member.lead(host.now_ms)
    monkeypatch.setattr(host, "engine", member.engine)
    host.turn()
    host.advance(2 * DAY)
    found = Counter(message.id for message in host.receive(100_000))
    assert found == instants_until(host, names, begun_ms)
