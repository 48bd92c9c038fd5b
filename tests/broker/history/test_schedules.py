"""Rule K: a right history of a schedule holds, and each planted fault breaks exactly K.

Histories are made of the lines that a client would record. The timing is an interval of a second
from 10,000, so that instants are easy to read; one test takes the broker's own recurrence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from delaylog.broker.engine.schedules import schedule
from delaylog.broker.history import (
    CheckReport,
    CheckSettings,
    HistoryChecker,
    HistoryError,
    read_items,
)
from delaylog.broker.history.schedules import AHEAD_MS, UnknownTiming
from delaylog.broker.rules.schedules import instants_of

SECOND = 1_000
RULES = frozenset("BCJK")
Line = dict[str, Any]


def every_second(members: Mapping[str, Any]) -> Callable[[int], int | None]:
    """Instants at 10,000, 11,000 and so on."""
    first, step = members["start_ms"], members["interval_ms"]
    return lambda after: max(first, first + ((after - first) // step + 1) * step)


def answer(next_ms: int | None, **members: Any) -> Line:
    """What the broker says of a schedule."""
    return {
        "state": "running",
        "interval_ms": SECOND,
        "start_ms": 10_000,
        "zone": "UTC",
        "overlap": "allow",
        "catch_up": "latest",
        "catch_up_window_ms": 86_400_000,
        "jitter_ms": 0,
        "n": 0,
        "skipped": 0,
        "fired_ms": None,
        "buffered_ms": None,
        "next_ms": next_ms,
        **members,
    }


def said(t: int, next_ms: int | None, ok: bool | None = True, **members: Any) -> Line:
    """A call about the schedule `s` that was answered at `t`."""
    described = answer(next_ms, **members) if ok else None
    return {"t0": t, "t1": t + 5, "op": "schedule", "ok": ok, "id": "s", "answer": described}


def fired(*instants: int, acked: bool = True) -> list[Line]:
    """Each was received on time, and acked."""
    lines = []
    for at in instants:
        t = max(at, 9_000)
        got = {"op": "deliver", "id": f"s@{at}", "now": t, "lease": f"L{at}", "lease_ms": 30_000}
        lines.append({"t0": t - 9, "t1": t + 2, "ok": True, "attempt": 1, **got})
        if acked:
            lines.append({"t0": t + 3, "t1": t + 4, "op": "ack", "ok": True, "id": f"s@{at}"})
    return lines


def end(t: int) -> Line:
    return {"mark": "end", "t": t}


def check(*parts: Line | list[Line], **settings: Any) -> CheckReport:
    lines = [line for part in parts for line in (part if isinstance(part, list) else [part])]
    options = {"bound_ms": 500, "slack_ms": 10, "rules": RULES, **settings}
    checker = HistoryChecker(CheckSettings(**options), instants=every_second)
    raw = [json.dumps(line).encode() for line in lines]
    checker.extend(read_items(raw, file="case"))
    return checker.finish()


def texts(report: CheckReport) -> list[str]:
    """Ids and reasons of the violations of K, which must be all that there are."""
    assert set(report.broken) <= {"K"}, report.broken
    return [f"{each.id}: {each.text}" for each in report.rules["K"].examples]


TEN = [10_000 + n * SECOND for n in range(10)]
RIGHT: list[Line | list[Line]] = [said(9_000, 10_000), fired(*TEN), said(19_600, 20_000, n=10)]
RIGHT.append(end(20_000))


def test_a_right_history_holds_and_each_instant_is_a_check() -> None:
    report = check(*RIGHT)
    assert texts(report) == []
    # Ten instants that are owed, ten messages that must be instants.
    assert report.rules["K"].checked == 20
    assert report.rules["B"].checked == 10
    assert report.lateness["broker"].count == 10


def test_a_skipped_instant_is_found() -> None:
    report = check(said(9_000, 10_000), fired(*TEN[:4], *TEN[5:]), *RIGHT[2:])
    assert texts(report) == ["s@14000: this instant has no message"]


def test_a_doubled_instant_is_found() -> None:
    """Its message was acked, and another one of its id came."""
    again = {**fired(14_000)[0], "t0": 15_000, "t1": 15_100, "now": 15_100, "lease": "M"}
    report = check(*RIGHT, [again], rules=frozenset("K"))
    assert [text.partition(":")[0] for text in texts(report)] == ["s@14000"]
    assert "the instant fired twice" in texts(report)[0]
    # A delivery that repeats one whose lease was lost is none.
    kill = {"mark": "kill", "t": 14_001}
    assert texts(check(*RIGHT[:1], fired(14_000, acked=False), kill, *RIGHT[1:])) == []


@pytest.mark.parametrize(
    ("next_ms", "acked", "instant", "broken"),
    [(14_000, False, 14_000, 0), (15_000, False, 14_000, 1), (14_000, True, 14_000, 1),
     (14_000, False, 16_000, 1)],
    ids=["again", "it is behind", "a third one", "a later one"],
)  # fmt: skip
def test_a_schedule_that_is_made_again_fires_an_instant_again(
    next_ms: int, acked: bool, instant: int, broken: int
) -> None:
    """A clock that was set back stands still, so the new schedule may begin where the old one did.

    Its answer must say so, and the message must have ended before.
    """
    gone = {**said(14_010, 0), "answer": None}
    again = {**fired(instant)[0], "t0": 17_000, "t1": 17_100, "now": 17_100, "lease": "M"}
    ack = {"t0": 14_500, "t1": 14_600, "op": "ack", "ok": True, "id": "s@14000"}
    lines = [said(13_500, 14_000), fired(14_000), gone, said(14_020, next_ms)]
    lines += [fired(instant)] * (instant != 14_000) + [ack] * acked + [again]
    report = check(*lines, end(17_200), rules=frozenset("K"))
    assert sum("fired twice" in text for text in texts(report)) == broken


def test_an_alien_instant_is_found() -> None:
    report = check(*RIGHT, fired(14_500))
    assert texts(report) == ["s@14500: no instant of the schedule, and nobody ran it by hand"]
    assert texts(check(*RIGHT, fired(9_000)))


def test_a_message_before_its_instant_is_early() -> None:
    early = {**fired(14_000)[0], "now": 13_999}
    assert check(said(9_000, 10_000), [early], end(10_000)).broken == ["B"]


def test_a_message_of_an_unknown_schedule_is_invented() -> None:
    assert check(fired(14_000), end(20_000)).broken == ["J"]


def test_a_run_by_hand_explains_one_message() -> None:
    run = {"t0": 14_400, "t1": 14_600, "op": "run", "ok": True, "id": "s", "at": 14_500}
    assert texts(check(*RIGHT, fired(14_500), run)) == []
    lost = {**run, "ok": None, "at": None}
    assert texts(check(*RIGHT, fired(14_500), lost)) == []
    assert len(texts(check(*RIGHT, fired(14_500, 15_500), lost))) == 1
    assert len(texts(check(*RIGHT, fired(14_500), {**lost, "ok": False}))) == 1


def test_a_backfill_explains_instants_of_its_range_and_repeats() -> None:
    schedule = [said(99_900, 100_000), end(100_000)]
    backfill = {"t0": 99_950, "t1": 99_960, "op": "backfill", "ok": True, "id": "s"}
    backfill |= {"since": 20_000, "until": 23_000}
    again = {**fired(20_000)[0], "t0": 99_970, "t1": 99_980, "now": 99_980, "lease": "M"}
    assert texts(check(*schedule, backfill, fired(20_000, 22_000), [again])) == []
    assert texts(check(*schedule, backfill, fired(23_000))) == [
        "s@23000: the schedule did not run with this instant then"
    ]


def test_a_pause_owes_nothing_and_allows_nothing() -> None:
    paused = [said(12_500, None, state="paused"), said(16_500, 17_000), said(19_600, 20_000)]
    lines = [said(9_000, 10_000), *paused, end(20_000)]
    assert texts(check(*lines, fired(*TEN[:3], *TEN[7:]))) == []
    # What was sent ahead of a pause may come: an instant of the second after it.
    assert texts(check(*lines, fired(*TEN[:4], *TEN[7:]))) == []
    assert texts(check(*lines, fired(*TEN[:3], *TEN[5:]))) == [
        f"s@{at}: the schedule did not run with this instant then" for at in (15_000, 16_000)
    ]
    missing = check(*lines, fired(*TEN[:2], *TEN[7:]))
    assert texts(missing) == ["s@12000: this instant has no message"]


def test_a_pause_takes_back_what_was_sent_ahead() -> None:
    """A read in the second before has counted the instant already."""
    lines = [said(9_000, 10_000), said(12_500, 14_000, n=4), said(12_600, None, state="paused")]
    assert texts(check(*lines, end(20_000), fired(*TEN[:3]))) == []
    assert texts(check(*lines, end(20_000), fired(*TEN[:2])))
    clock = {"mark": "clock", "t": 9_000}
    lines[0] = said(9_000, 10_000, catch_up="all")
    lines[1] = said(12_500, 14_000, n=4, fired_ms=13_000, catch_up="all")
    assert texts(check(*lines, clock, end(20_000), fired(*TEN[:3]))) == []
    assert texts(check(*lines, clock, end(20_000), fired(*TEN[:2])))


def test_a_put_that_was_repeated_may_have_fired_before_its_answer() -> None:
    late = {**said(9_000, 12_000, n=2, fired_ms=11_000), "t1": 11_200}
    gone = {"t0": 5_000, "t1": 5_001, "op": "schedule", "ok": True, "id": "s"}
    assert texts(check(gone, late, fired(*TEN[:3]), end(13_000))) == []
    assert texts(check(gone, {**late, "t0": 11_100}, fired(*TEN[:3]), end(13_000)))


def test_a_changed_timing_holds_from_its_answer_on() -> None:
    changed = said(12_500, 14_000, interval_ms=2 * SECOND)
    lines = [said(9_000, 10_000), changed, said(19_600, 20_000, interval_ms=2 * SECOND)]
    kept = [*TEN[:3], 14_000, 16_000, 18_000]
    assert texts(check(*lines, end(20_000), fired(*kept))) == []
    assert texts(check(*lines, end(20_000), fired(*kept, 15_000)))
    assert texts(check(*lines, end(20_000), fired(*kept[:-2], 18_000)))


def test_a_deleted_schedule_owes_nothing_more() -> None:
    gone = {"t0": 12_500, "t1": 12_505, "op": "schedule", "ok": True, "id": "s"}
    lines = [said(9_000, 10_000), gone, end(20_000)]
    assert texts(check(*lines, fired(*TEN[:3]))) == []
    assert texts(check(*lines, fired(*TEN[:3], 15_000)))


def test_a_call_whose_answer_was_lost_decides_nothing_until_the_next_answer() -> None:
    lines = [said(9_000, 10_000), said(12_500, None, ok=None), said(16_500, 17_000), end(20_000)]
    for extra in ([], [14_000], [14_500]):
        assert texts(check(*lines, fired(*TEN[:3], *extra, *TEN[7:]))) == []
    assert texts(check(*lines, fired(*TEN[:3], *TEN[8:])))


def test_the_broker_says_what_it_has_decided_when_its_clock_was_stepped() -> None:
    """It ran 100 s ahead: by the clients' clock the instants come before their times."""
    clock = {"mark": "clock", "t": 9_500}
    ahead = range(110_000, 113_000, SECOND)
    lines = [clock, said(9_600, 110_000), said(13_000, 113_000), end(14_000)]
    came = [{**line, "t0": 9_900, "t1": 12_900} for line in fired(*ahead)]
    # Its instants lie behind the end, so none is owed, and each is allowed.
    assert texts(check(*lines, came, rules=frozenset("K"))) == []
    assert texts(check(*lines, fired(110_500), rules=frozenset("K")))


@pytest.mark.parametrize(
    ("overlap", "closing", "broken"),
    [
        ("skip", {"skipped": 2, "n": 8}, False),
        ("skip", {"skipped": 1, "n": 9}, True),
        ("buffer_one", {"skipped": 1, "n": 8, "buffered_ms": 19_000}, False),
        ("buffer_one", {"skipped": 1, "n": 8}, True),
        ("replace", {"n": 10}, False),
        ("replace", {"n": 9}, True),
    ],
)
def test_overlap_explains_as_many_instants_as_the_answer_counts(
    overlap: str, closing: Line, broken: bool
) -> None:
    """Two of ten have no message."""
    first = said(9_000, 10_000, overlap=overlap)
    last = said(19_600, 20_000, overlap=overlap, **closing)
    report = check(first, fired(*TEN[:7], TEN[9]), last, end(20_000))
    assert bool(texts(report)) is broken


@pytest.mark.parametrize(
    ("catch_up", "window_ms", "broken"),
    [("none", 0, False), ("latest", 0, False), ("all", 200_000, True), ("all", 50_000, False)],
)
def test_an_outage_obeys_the_policy(catch_up: str, window_ms: int, broken: bool) -> None:
    """120 s without a broker: what was due then may be passed over, but for `all`."""
    rules: Line = {"catch_up": catch_up, "catch_up_window_ms": window_ms}
    kill = {"mark": "kill", "t": 20_000, "until": 140_000}
    lines = [said(9_000, 10_000, **rules), kill, said(150_400, 151_000, **rules), end(151_400)]
    fresh = [*range(10_000, 20_000, SECOND), *range(79_000, 151_000, SECOND)]
    assert bool(texts(check(*lines, fired(*fresh)))) is broken
    assert texts(check(*lines, fired(*fresh[:-1])))


def test_a_message_that_may_have_expired_is_not_owed() -> None:
    lines = [said(9_000, 10_000, ttl_ms=2_000), said(19_600, 20_000, ttl_ms=2_000), end(20_000)]
    assert texts(check(*lines, fired(18_000, 19_000))) == []
    assert texts(check(*lines, fired(*TEN[:9]))) == ["s@19000: this instant has no message"]


def test_jitter_makes_an_instant_owed_later() -> None:
    lines = [said(9_000, 10_000, jitter_ms=5_000), said(19_600, 20_000, jitter_ms=5_000)]
    assert texts(check(*lines, end(20_000), fired(*TEN[:5]))) == []
    assert texts(check(*lines, end(20_000), fired(*TEN[:4])))


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_pause_takes_back_an_instant_whose_jitter_has_not_passed(overlap: str) -> None:
    """Its firing is due up to its jitter later. An instant before the jitter is owed."""
    rules = {"overlap": overlap, "jitter_ms": 900}
    begin, pause = said(9_000, 10_000, **rules), said(13_500, None, state="paused", **rules)
    assert texts(check(begin, fired(*TEN[:3]), pause, end(20_000))) == []
    broken = texts(check(begin, fired(*TEN[:2]), pause, end(20_000)))
    assert [text.partition(":")[0] for text in broken] == ["s@12000"]


def test_an_ended_schedule_owes_its_instants_up_to_the_last() -> None:
    ended = said(19_600, None, state="ended", n=3, fired_ms=12_000)
    lines = [said(9_000, 10_000), ended, end(20_000)]
    assert texts(check(*lines, fired(*TEN[:3]))) == []
    assert texts(check(*lines, fired(*TEN[:2])))


def test_a_schedule_with_a_count_owes_so_many_instants() -> None:
    """A run by hand counts as one of them."""
    begin = said(9_000, 10_000, count=3)
    changed = said(19_600, 80_000, interval_ms=60_000, n=3)
    assert texts(check(begin, fired(*TEN[:3]), changed, end(20_000))) == []
    assert texts(check(begin, fired(*TEN[:2]), changed, end(20_000)))
    by_hand = {"t0": 9_100, "t1": 9_101, "op": "run", "ok": True, "id": "s", "at": 9_100}
    assert texts(check(begin, by_hand, fired(9_100, *TEN[:2]), changed, end(20_000))) == []


def test_a_schedule_that_is_older_than_the_history_may_have_fired_before() -> None:
    old = said(15_500, 16_000, n=6)
    assert texts(check(fired(*TEN), old, said(19_600, 20_000, n=10), end(20_000))) == []


def test_the_brokers_own_recurrence_gives_the_instants() -> None:
    """02:30 of 28 March 2027 does not exist in Berlin, and fires at 03:00."""
    rule: Line = {
        "interval_ms": None,
        "start_ms": None,
        "cron": "30 2 * * *",
        "zone": "Europe/Berlin",
    }
    day, gap_ms = 86_400_000, 1_806_195_600_000
    first, last = said(gap_ms - 5, gap_ms, **rule), said(gap_ms + day, gap_ms + 2 * day, **rule)
    checker = HistoryChecker(CheckSettings(rules=RULES), instants=instants_of)
    lines = [first, last, *fired(gap_ms, gap_ms + day - 1_800_000), end(gap_ms + day + 60_000)]
    checker.extend(read_items([json.dumps(line).encode() for line in lines], file="case"))
    assert texts(checker.finish()) == []


def test_wrong_lines_are_refused() -> None:
    with pytest.raises(UnknownTiming, match="schedule 's': give the checker `instants`"):
        HistoryChecker().extend(read_items([json.dumps(said(0, 1)).encode()], file="h"))
    cases = {
        "answer.n": said(0, 1, n=None),
        "answer.next_ms": {**said(0, 1), "answer": {**answer(1), "next_ms": "soon"}},
        "at": {"t0": 0, "t1": 1, "op": "run", "ok": True, "id": "s"},
        "since": {"t0": 0, "t1": 1, "op": "backfill", "ok": True, "id": "s", "until": 9},
        "id": {"t0": 0, "t1": 1, "op": "schedule", "ok": None},
        "answer": {"t0": 0, "t1": 1, "op": "schedule", "ok": True, "id": "s", "answer": "x"},
    }
    for field, line in cases.items():
        with pytest.raises(HistoryError, match=f"field '{field}'"):
            list(read_items([json.dumps(line).encode()], file="h"))
    wrong = said(0, 1, interval_ms=None, cron="nonsense")
    checker = HistoryChecker(instants=instants_of)
    checker.extend(read_items([json.dumps(wrong).encode()], file="h"))
    with pytest.raises(ValueError, match="schedule 's': cron"):
        checker.finish()


def test_an_instant_is_sent_ahead_as_the_broker_does() -> None:
    assert AHEAD_MS == schedule.AHEAD_MS
