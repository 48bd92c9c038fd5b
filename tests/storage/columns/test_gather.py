"""Gathering ranges: every way gives what slices give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.columns import gather

BLOCK = bytes(range(256)) * 2


def plainly(starts: list[int], sizes: list[int]) -> bytes:
    return b"".join(BLOCK[a : a + n] for a, n in zip(starts, sizes, strict=True))


def gathered(starts: list[int], sizes: list[int]) -> bytes:
    return gather(BLOCK, np.array(starts, np.int64), np.array(sizes, np.int64))


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 12)), max_size=9))
def test_any_ranges(ranges: list[tuple[int, int]]) -> None:
    """Whatever stands where, overlapping or not."""
    starts, sizes = [a for a, _ in ranges], [n for _, n in ranges]
    assert gathered(starts, sizes) == plainly(starts, sizes)


@given(st.integers(0, 60), st.integers(-20, 20), st.integers(0, 12), st.integers(1, 9))
def test_equal_steps(first: int, step: int, size: int, n: int) -> None:
    """Ranges of one size at equal steps: apart, in a row, overlapping, backwards, in one place."""
    first += 200
    starts = [first + k * step for k in range(n)]
    assert gathered(starts, [size] * n) == plainly(starts, [size] * n)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 12))
def test_whole_sizes(numbers: list[int], size: int) -> None:
    """Numbers of a table of equal parts, in any order."""
    starts = [5 + number * size for number in numbers]
    assert gathered(starts, [size] * len(starts)) == plainly(starts, [size] * len(starts))


def test_behind_the_end() -> None:
    """The last range may end where the block does, and not later."""
    assert gathered([480, 496], [16, 16]) == BLOCK[480:512]
    assert gathered([448, 500], [12, 12]) == BLOCK[448:460] + BLOCK[500:512]
    with pytest.raises(ValueError, match="buffer"):
        gathered([448, 501], [12, 12])
