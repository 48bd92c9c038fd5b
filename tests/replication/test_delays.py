"""What a node takes for a delay, and how long it remembers it."""

from __future__ import annotations

import pytest

from delaylog.replication.oracle import DELAY_MS_MAX, FACTOR_MAX, FADE_MS, Delays


@pytest.mark.parametrize(
    ("delay_ms", "factor"),
    [(0, 1.0), (60, 1.0), (100, 1.0), (150, 1.5), (400, 4.0), (DELAY_MS_MAX, FACTOR_MAX)],
)
def test_the_longest_delay_stretches(delay_ms: int, factor: float) -> None:
    delays = Delays()
    delays.note(delay_ms, 1_000)
    delays.note(20, 1_010)
    assert delays.factor(1_000) == factor


def test_a_stop_is_no_delay() -> None:
    delays = Delays()
    delays.note(DELAY_MS_MAX + 1, 1_000)
    assert delays.factor(1_000) == 1.0


def test_a_delay_fades_within_a_minute() -> None:
    delays = Delays()
    delays.note(400, 1_000)
    factors = [delays.factor(1_000 + age_ms) for age_ms in range(0, FADE_MS + 1, 1_000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[30] == 2.0
    assert factors[46] == 1.0, "what is left of it is no more than rounds need"


def test_a_shorter_delay_counts_once_the_longer_one_has_faded() -> None:
    delays = Delays()
    delays.note(400, 0)
    delays.note(250, 10_000)
    assert delays.factor(10_000) == pytest.approx(400 * 50 / 60 / 100)
    delays.note(250, 30_000)
    assert delays.factor(30_000) == 2.5
