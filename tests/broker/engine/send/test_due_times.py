"""Columns of due times: one number in seconds, or over the horizon, is enough to refuse them."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.send.due_times import check_due_times

NOW_MS = 1_795_600_000_000
HORIZON_MS = 1_000


@pytest.mark.parametrize("due", [0, 10**12, NOW_MS + HORIZON_MS, np.array([0, 10**12, NOW_MS])])
def test_times_in_milliseconds_may_be_past(due: int) -> None:
    check_due_times(due, NOW_MS, HORIZON_MS)


@pytest.mark.parametrize(
    ("due", "words"),
    [
        (1_795_600_000, "deliver_at_ms 1795600000 is before 2001-09-09"),
        (-1, "deliver_at_ms -1 is negative: give milliseconds since 1970"),
        (np.array([0, NOW_MS, 10**12 - 1]), "deliver_at_ms 999999999999 is before"),
        (NOW_MS + HORIZON_MS + 1, "is 0.0 years ahead, over the horizon of 1000 ms"),
        (NOW_MS + 3_155_760_000_000, "4951360000000 is 100.0 years ahead, over the horizon"),
        (NOW_MS * 1_000, "looks like microseconds: give milliseconds since 1970"),
        (NOW_MS * 1_000_000 + 5, "looks like nanoseconds: give milliseconds since 1970"),
        (np.array([NOW_MS, NOW_MS + HORIZON_MS + 1]), "over the horizon"),
    ],
)
def test_others_are_refused(due: int, words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        check_due_times(due, NOW_MS, HORIZON_MS)


@pytest.mark.parametrize("wrong", [NOW_MS + HORIZON_MS + 1, 10**12 - 1])
def test_the_row_is_named(wrong: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        check_due_times(np.array([NOW_MS, 0, wrong]), NOW_MS, HORIZON_MS)
    assert caught.value.item == 2


def test_a_clock_before_2001_has_times_before_2001() -> None:
    check_due_times(np.array([1, 5]), 5, HORIZON_MS)
    with pytest.raises(BadRequestError):
        check_due_times(-1, 5, HORIZON_MS)
