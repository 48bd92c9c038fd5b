"""Rows moved whole are the rows that numpy would move field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.columns import among, concat_rows, copy_rows, distinct, put_rows, take_rows
from delaylog.storage.layout import INDEX_ENTRY, STATE_ENTRY

LAYOUTS = pytest.mark.parametrize("layout", [INDEX_ENTRY, STATE_ENTRY], ids=["index", "state"])
NUMBERS = st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 5), max_size=40)


def some_rows(layout: Any, n: int, seed: int = 1) -> Any:
    raw = np.random.default_rng(seed).bytes(n * layout.itemsize)
    return np.frombuffer(raw, layout)


@LAYOUTS
@given(n=st.integers(1, 30), data=st.data())
def test_taken_and_put_as_numpy_does(layout: Any, n: int, data: st.DataObject) -> None:
    rows = some_rows(layout, n)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=n)), np.int64)
    for at in (mask, places, slice(n // 3, n)):
        taken = take_rows(rows, at)
        assert taken.dtype == layout
        assert taken.tobytes() == rows[at].tobytes()
        out, wanted = some_rows(layout, n, 2).copy(), some_rows(layout, n, 2).copy()
        put_rows(out, at, taken)
        wanted[at] = rows[at]
        assert out.tobytes() == wanted.tobytes()
        put_rows(out, at, rows[:1])
        wanted[at] = rows[:1]
        assert out.tobytes() == wanted.tobytes()


@LAYOUTS
def test_copies_are_copies(layout: Any) -> None:
    rows = some_rows(layout, 10)
    wanted = rows.tobytes()
    parts = (copy_rows(rows), concat_rows([rows]), concat_rows([rows[:4], rows[4:]]))
    for copied in (*parts, take_rows(rows, slice(0, 10))):
        assert copied.tobytes() == wanted
        copied.view(np.uint8)[:] = 0
    assert rows.tobytes() == wanted


@given(values=NUMBERS, wanted=NUMBERS)
def test_distinct_and_among(values: list[int], wanted: list[int]) -> None:
    column = np.array(values, np.int64)
    assert distinct(column).tolist() == sorted(set(values))
    assert among(column, np.array(wanted, np.int64)).tolist() == [v in wanted for v in values]
