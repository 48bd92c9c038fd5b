"""The rate of a counter, and the token bucket of a limit.

The rate is the mean growth over ten to twenty seconds, told at any moment. The bucket is compared
with exact fractions: never too much in any window, nothing lost ever. Its calls come in any order
with a clock that stands still, jumps ahead and steps back.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.topics.rates import HOLD_MS_MAX, WINDOW_MS, RateMeter, TokenBucket
from delaylog.storage.layout import NEVER_MS
from tests.effort import tries

START_MS = 1_760_000_000_000
RATES = st.one_of(
    st.integers(1, 10**12).map(lambda millionths: millionths / 10**6),
    st.sampled_from([0.1, 1 / 3, 1.0, 7.7, 1_000.0, 123_456.789]),
)
STEPS = st.one_of(st.integers(0, 20), st.integers(0, 100_000), st.just(0))


def exact(per_second: float) -> Fraction:
    """Tokens a millisecond."""
    return Fraction(round(per_second * 10**6), 10**9)


@given(
    per_second=RATES,
    burst=st.integers(1, 1_000),
    calls=st.lists(st.tuples(STEPS, st.integers(0, 3_000), st.integers(0, 5)), max_size=40),
)
def test_no_window_sees_more_than_burst_and_rate(
    per_second: float, burst: int, calls: list[tuple[int, int, int]]
) -> None:
    bucket = TokenBucket(per_second, burst)
    now_ms = START_MS
    taken: list[tuple[int, int]] = []
    for step, wanted, unused in calls:
        now_ms += step
        count = bucket.take(now_ms, wanted)
        assert 0 <= count <= wanted
        unused = min(unused, count)
        bucket.give_back(unused)
        taken.append((now_ms, count - unused))
    for first in range(len(taken)):
        total = 0
        for at_ms, count in taken[first:]:
            total += count
            assert total <= burst + exact(per_second) * (at_ms - taken[first][0])


@given(per_second=RATES, burst=st.integers(1, 1_000), steps=st.lists(STEPS, max_size=60))
def test_greedy_calls_get_all_that_was_earned(
    per_second: float, burst: int, steps: list[int]
) -> None:
    bucket = TokenBucket(per_second, burst)
    level = Fraction(burst)
    now_ms = START_MS
    for step in steps:
        now_ms += step
        level = min(level + exact(per_second) * step, Fraction(burst))
        whole = level.numerator // level.denominator
        assert bucket.take(now_ms, 10**9) == whole
        level -= whole


@pytest.mark.parametrize("per_second", [0.1, 1 / 3, 0.7, 3.0, 7.77, 333.333])
def test_a_day_loses_nothing_to_rounding(per_second: float) -> None:
    """ReceiveRequest far more often than a token comes, at odd moments."""
    bucket = TokenBucket(per_second, 1_000)
    assert bucket.take(START_MS, 1_000) == 1_000
    total, now_ms, step = 0, START_MS, 0
    while now_ms < START_MS + 86_400_000:
        step = (step * 7 + 13) % 997
        now_ms = min(now_ms + 1 + step, START_MS + 86_400_000)
        total += bucket.take(now_ms, 1_000)
    assert total == exact(per_second) * 86_400_000 // 1


@given(
    per_second=RATES,
    burst=st.integers(1, 20),
    moves=st.lists(
        st.tuples(st.integers(-3 * HOLD_MS_MAX, 3 * HOLD_MS_MAX), st.integers(0, 30)), max_size=40
    ),
)
def test_a_clock_that_goes_back_earns_nothing_by_it(
    per_second: float, burst: int, moves: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(per_second, burst)
    now_ms = START_MS
    taken = bucket.take(now_ms, burst)
    ahead = 0
    for move, wanted in moves:
        now_ms += move
        ahead += max(move, 0)
        taken += bucket.take(now_ms, wanted)
        assert taken <= burst + exact(per_second) * ahead


def test_jitter_waits_and_a_step_back_does_not() -> None:
    bucket = TokenBucket(10.0, 5)
    assert bucket.take(START_MS, 5) == 5
    for _ in range(1_000):
        assert bucket.take(START_MS - 99, 1) == 0
        assert bucket.take(START_MS, 1) == 0
    assert bucket.ready_at_ms(START_MS - 99) == START_MS + 100
    back_ms = START_MS - 3_600_000
    assert bucket.ready_at_ms(back_ms) == back_ms + 100
    assert bucket.take(back_ms + 99, 1) == 0
    assert bucket.take(back_ms + 100, 1) == 1


@given(per_second=RATES, burst=st.integers(1, 50), step=STEPS, wanted=st.integers(0, 60))
def test_ready_at_is_the_first_millisecond_with_a_token(
    per_second: float, burst: int, step: int, wanted: int
) -> None:
    bucket = TokenBucket(per_second, burst)
    bucket.take(START_MS, wanted)
    now_ms = START_MS + step
    ready_ms = bucket.ready_at_ms(now_ms)
    assert ready_ms >= now_ms
    if ready_ms > now_ms:
        assert bucket.take(ready_ms - 1, 1) == 0
    assert bucket.take(ready_ms, 1) == 1


def test_a_pause_earns_no_more_than_the_burst() -> None:
    bucket = TokenBucket(10.0, 5)
    assert bucket.take(START_MS, 3) == 3
    assert bucket.take(START_MS + 3_600_000, 50) == 5


def test_a_rate_of_zero_gives_the_burst_and_no_more() -> None:
    bucket = TokenBucket(0, 2)
    assert bucket.ready_at_ms(START_MS) == START_MS
    assert bucket.take(START_MS, 9) == 2
    assert bucket.take(START_MS + 10**12, 9) == 0
    assert bucket.ready_at_ms(START_MS) == NEVER_MS


def test_given_back_tokens_go_again_but_never_over_the_burst() -> None:
    bucket = TokenBucket(1.0, 4)
    assert bucket.take(START_MS, 4) == 4
    bucket.give_back(3)
    assert bucket.take(START_MS, 9) == 3
    bucket.give_back(3)
    assert bucket.take(START_MS + 60_000, 9) == 4
    assert bucket.take(START_MS + 60_000, -1) == 0


@pytest.mark.parametrize(
    ("per_second", "burst"), [(-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1e300, 1), (1.0, 0)]
)
def test_what_is_no_rate_is_refused(per_second: float, burst: int) -> None:
    with pytest.raises(ValueError, match=r"a (rate|burst) is"):
        TokenBucket(per_second, burst)


# ------------------------------------------------------------------------------ the meter


def test_steady_growth_is_told_from_the_first_second_on() -> None:
    meter, value = RateMeter(), 0
    for now in range(0, 60_000, 100):
        meter.look(now, value)
        value += 7
        if now >= 1_000:
            assert meter.per_second(now, value) == pytest.approx(70, rel=0.11)


def test_a_first_burst_is_no_leap() -> None:
    meter = RateMeter()
    meter.look(5_000, 100)
    assert meter.per_second(5_000, 150) == 50
    assert meter.per_second(7_000, 150) == 25


def test_who_stands_still_goes_to_zero() -> None:
    meter = RateMeter()
    meter.look(0, 0)
    assert meter.per_second(2_000, 1_000) == 500
    assert meter.per_second(2_000 + WINDOW_MS, 1_000) == 0


def test_after_a_pause_only_what_is_new_counts() -> None:
    meter = RateMeter()
    meter.look(0, 0)
    meter.look(3_600_000, 1_000)
    assert meter.per_second(3_600_000, 1_100) == 10


def test_a_clock_that_is_set_back_begins_anew() -> None:
    meter = RateMeter()
    meter.look(1_000_000, 0)
    meter.look(5_000, 500)
    assert meter.per_second(6_000, 510) == 10


@pytest.mark.parametrize("seed", range(tries(20)))
def test_the_mean_lies_between_those_of_one_and_two_windows(seed: int) -> None:
    """Whoever asks, and whenever: the window is one that the growth itself knows."""
    random, meter = Random(seed), RateMeter()
    grown: list[tuple[int, int]] = []
    now = value = 0
    for _ in range(400):
        now += random.choice([1, 50, 900, 4_000, 12_000, 30_000])
        meter.look(now, value)
        by = random.randint(0, 20)
        grown.append((now, by))
        value += by
        told = meter.per_second(now, value) if random.random() < 0.3 else None
        if told is not None and now > grown[0][0] + 3 * WINDOW_MS:
            least = sum(n for at, n in grown if at >= now - WINDOW_MS)
            most = sum(n for at, n in grown if at >= now - 3 * WINDOW_MS)
            assert told <= most / (WINDOW_MS / 1_000) + 1e-9
            assert told >= least / (3 * WINDOW_MS / 1_000) - 1e-9 or least == 0
