"""Jitter: stable, spread, and never past the next instant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.firings import due_ms


@given(
    st.binary(max_size=40),
    st.integers(0, 2**50),
    st.none() | st.integers(1, 10**9),
    st.integers(0, 10**9),
)
def test_a_firing_is_due_before_the_next_instant(
    schedule: bytes, instant: int, step: int | None, jitter: int
) -> None:
    """In [instant, instant + jitter], before the next instant, and the same each time."""
    following = None if step is None else instant + step
    due = due_ms(schedule, instant, following, jitter)
    assert instant <= due <= instant + jitter
    assert following is None or due < following
    assert due == due_ms(schedule, instant, following, jitter)


DUES = [11_862, 371, 16_305]


def test_equal_schedules_spread() -> None:
    """10,000 schedules of one instant over a minute; a cluster shares these values."""
    dues = [due_ms(b"s%d" % n, 0, None, 59_999) for n in range(10_000)]
    seconds = [sum(1 for due in dues if due // 1_000 == s) for s in range(60)]
    assert min(seconds) > 110
    assert max(seconds) < 230
    assert dues[:3] == DUES
