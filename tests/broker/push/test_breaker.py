"""The breaker: its turns in order, its limits, and by Hypothesis what holds after any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.push.targets import WELL, Health
from delaylog.broker.push.breaker import (
    FAILURES_TO_OPEN,
    PAUSE_FIRST_MS,
    PAUSE_MS_MAX,
    THROTTLE_MS,
    WINDOW_ATTEMPTS_MIN,
    Breaker,
)
from delaylog.broker.push.outcomes import ACKED, Outcome, Verdict
from delaylog.storage.layout import NEVER_MS

NOW = 1_790_000_000_000
FAILED = Outcome(Verdict.FAILED, "answer 500", unwell=True)
DISLIKED = Outcome(Verdict.FAILED, "answer 400")
GONE = Outcome(Verdict.GONE, "answer 410")


def throttled(wait_ms: int | None, *, unwell: bool = False) -> Outcome:
    return Outcome(Verdict.THROTTLED, "answer 429", wait_ms, unwell)


def attempt(breaker: Breaker, outcome: Outcome, now_ms: int) -> None:
    assert breaker.permitted(now_ms, 1) == 1
    breaker.ended(outcome, now_ms)


def opened() -> Breaker:
    breaker = Breaker(concurrency=10)
    for _ in range(FAILURES_TO_OPEN):
        attempt(breaker, FAILED, NOW)
    return breaker


def grown(concurrency: int) -> Breaker:
    """A breaker that has seen successes enough for its full concurrency."""
    breaker = Breaker(concurrency=concurrency)
    for _ in range(concurrency):
        attempt(breaker, ACKED, NOW)
    return breaker


def test_attempts_in_flight_grow_with_successes_and_halve_with_failures() -> None:
    breaker = Breaker(concurrency=10)
    for before in range(1, 4):
        assert breaker.permitted(NOW, 99) == before
        breaker.unused(before - 1)
        breaker.ended(ACKED, NOW)
    assert breaker.permitted(NOW, 99) == 4
    for _ in range(4):
        breaker.ended(ACKED, NOW)
    assert breaker.permitted(NOW, 99) == 8
    breaker.ended(FAILED, NOW)
    assert breaker.permitted(NOW, 99) == 0
    for _ in range(7):
        breaker.ended(DISLIKED, NOW)
    assert breaker.permitted(NOW, 99) == 4
    breaker = grown(10)
    assert breaker.permitted(NOW, 99) == 10


def test_the_last_failure_has_its_reason_before_the_breaker_opens() -> None:
    """An operator sees why a target fails from the first failure on."""
    breaker = Breaker(concurrency=10)
    assert breaker.permitted(NOW, 1) == 1
    breaker.ended(FAILED, NOW)
    health = breaker.health
    assert (health.state(NOW), health.failing_since_ms, health.reason) == (
        "closed",
        NOW,
        "answer 500",
    )


def test_failures_in_a_row_open_it_and_a_probe_closes_it() -> None:
    breaker = opened()
    assert breaker.health.state(NOW) == "open"
    assert breaker.health.reason == "answer 500"
    assert breaker.permitted(NOW + PAUSE_FIRST_MS - 1, 9) == 0
    assert breaker.ready_at_ms(NOW) == NOW + PAUSE_FIRST_MS
    later = NOW + PAUSE_FIRST_MS
    assert breaker.health.state(later) == "half-open"
    assert breaker.permitted(later, 9) == 1
    assert breaker.permitted(later, 9) == 0
    assert breaker.ready_at_ms(later) == NEVER_MS
    breaker.ended(ACKED, later)
    assert breaker.health == WELL
    assert breaker.permitted(later, 99) == 2
    breaker.unused(2)


def test_pauses_double_up_to_a_bound() -> None:
    pauses: list[int] = []
    breaker, now_ms = opened(), NOW
    for _ in range(12):
        pauses.append(breaker.health.open_until_ms - now_ms)
        now_ms = breaker.health.open_until_ms
        attempt(breaker, FAILED, now_ms)
    assert pauses[:3] == [PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 4 * PAUSE_FIRST_MS]
    assert pauses[-1] == PAUSE_MS_MAX
    assert breaker.health.failing_since_ms == NOW


def test_attempts_that_began_before_it_opened_do_not_lengthen_the_pause() -> None:
    breaker = grown(100)
    assert breaker.permitted(NOW, 100) == 100
    for _ in range(100):
        breaker.ended(FAILED, NOW + 10)
    assert breaker.health.open_until_ms == NOW + 10 + PAUSE_FIRST_MS
    assert breaker.health.turns == 1


def test_a_target_that_fails_half_of_the_time_opens_it() -> None:
    breaker = Breaker(concurrency=10)
    for number in range(WINDOW_ATTEMPTS_MIN):
        assert breaker.health.state(NOW) == "closed"
        attempt(breaker, FAILED if number % 2 else ACKED, NOW + number)
    assert breaker.health.state(NOW) == "open"


def test_a_target_that_fails_seldom_stays_closed() -> None:
    breaker = Breaker(concurrency=10)
    for number in range(500):
        attempt(breaker, ACKED if number % 5 else FAILED, NOW + 7 * number)
    assert breaker.health.state(NOW) == "closed"


def test_a_message_that_a_receiver_dislikes_is_no_evidence() -> None:
    breaker = Breaker(concurrency=10)
    for number in range(500):
        attempt(breaker, DISLIKED, NOW + number)
    assert breaker.health == WELL


def test_410_disables_until_an_operator_enables() -> None:
    breaker = Breaker(concurrency=10)
    attempt(breaker, GONE, NOW)
    assert (breaker.health.disabled, breaker.health.reason) == ("gone", "answer 410")
    assert breaker.health.state(NOW + 10**12) == "disabled"
    assert breaker.permitted(NOW + 10**12, 1) == 0
    assert breaker.ready_at_ms(NOW) == NEVER_MS


@pytest.mark.parametrize("disabled", ["gone", "operator"])
@pytest.mark.parametrize("outcome", [ACKED, DISLIKED, FAILED, throttled(60_000), GONE])
def test_attempts_that_began_before_it_was_disabled_change_nothing(
    disabled: str, outcome: Outcome
) -> None:
    breaker = grown(10)
    assert breaker.permitted(NOW, 10) == 10
    breaker.health = kept = Health(disabled)
    for _ in range(10):
        breaker.ended(outcome, NOW)
    assert (breaker.health, breaker.in_flight) == (kept, 0)


def test_a_throttle_waits_as_long_as_was_asked() -> None:
    breaker = Breaker(concurrency=10)
    attempt(breaker, throttled(None), NOW)
    assert breaker.health.reason == "answer 429"
    assert breaker.ready_at_ms(NOW) == NOW + THROTTLE_MS
    attempt(breaker, throttled(60_000), NOW + THROTTLE_MS)
    assert breaker.health.state(NOW + THROTTLE_MS) == "throttled"
    assert breaker.ready_at_ms(NOW) == NOW + THROTTLE_MS + 60_000
    assert breaker.permitted(NOW + 60_999, 1) == 0
    attempt(breaker, ACKED, NOW + 61_000)
    assert breaker.health == WELL
    # An attempt that is not counted is not repeated at once.
    attempt(breaker, throttled(0), NOW + 61_000)
    assert breaker.ready_at_ms(NOW) == NOW + 61_000 + THROTTLE_MS


def test_a_gateway_that_never_finds_its_server_opens_it_too() -> None:
    breaker, now_ms = Breaker(concurrency=10), NOW
    for _ in range(FAILURES_TO_OPEN):
        attempt(breaker, throttled(0, unwell=True), now_ms)
        now_ms += THROTTLE_MS
    assert breaker.health.state(now_ms) == "open"


def test_rate_and_concurrency_are_both_kept() -> None:
    breaker = Breaker(concurrency=4, per_second=2)
    for ago_ms in (4_000, 3_000, 2_000):
        attempt(breaker, ACKED, NOW - ago_ms)
    assert breaker.permitted(NOW, 10) == 2
    assert breaker.ready_at_ms(NOW) == NOW + 500
    assert breaker.permitted(NOW + 1_000, 10) == 2
    assert breaker.permitted(NOW + 9_000, 10) == 0
    assert breaker.ready_at_ms(NOW + 9_000) == NEVER_MS
    breaker.unused(3)
    assert breaker.permitted(NOW + 9_000, 10) == 2


@pytest.mark.parametrize(
    "health",
    [WELL, Health("gone", reason="answer 410"), opened().health, Health("", 5, 3, 9, 1, "x")],
)
def test_health_survives_a_restart(health: Health) -> None:
    stored = health.as_dict()
    assert all(type(value) in (int, str) for value in stored.values())
    again = Breaker(Health(**stored), concurrency=10)
    assert again.health == health
    for now_ms in (NOW, NOW + PAUSE_FIRST_MS):
        there = Breaker(health, concurrency=10).permitted(now_ms, 5)
        assert Breaker(Health(**stored), concurrency=10).permitted(now_ms, 5) == there


OUTCOMES = st.sampled_from(
    [ACKED, FAILED, DISLIKED, throttled(None), throttled(5_000, unwell=True)]
)
STEPS = st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(0, 5), st.lists(OUTCOMES, max_size=4)),
    max_size=60,
)


@given(steps=STEPS, concurrency=st.integers(1, 5))
def test_after_any_history(steps: list[tuple[int, int, list[Outcome]]], concurrency: int) -> None:
    """No more run than permitted; none begins in a pause; an attempt is possible in finite time;
    what is permitted agrees with `ready_at_ms`; and one success closes it.
    """
    breaker, now_ms = Breaker(concurrency=concurrency), NOW
    for wait_ms, wanted, outcomes in steps:
        now_ms += wait_ms
        ready = breaker.ready_at_ms(now_ms) == now_ms
        state, before = breaker.health.state(now_ms), breaker.in_flight
        count = breaker.permitted(now_ms, wanted)
        assert (count > 0) == (ready and wanted > 0)
        assert breaker.in_flight <= concurrency
        assert count == 0 or state in ("closed", "half-open")
        assert state != "half-open" or count == 0 or before == 0
        for outcome in outcomes[: breaker.in_flight]:
            breaker.ended(outcome, now_ms)
    while breaker.in_flight:
        breaker.ended(FAILED, now_ms)
    now_ms = breaker.ready_at_ms(now_ms)
    assert now_ms < NEVER_MS
    attempt(breaker, ACKED, now_ms)
    assert breaker.health.state(now_ms) == "closed"
    assert breaker.permitted(now_ms, concurrency) >= min(2, concurrency)
