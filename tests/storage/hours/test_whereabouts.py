"""Places of refs: what is remembered is what looking would find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.hours.hour_store import KEPT, Whereabouts
from delaylog.storage.layout import HOUR_SHIFT, INDEX_MASK, Int64Array

SOME = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=12
) | st.builds(
    lambda hour, first, n: [(hour, first + k) for k in range(n)],
    st.integers(0, 2),
    st.integers(1, 9),
    st.integers(1, 12),
)


def refs_of(rows: list[tuple[int, int]]) -> Int64Array:
    return np.array([(hour << HOUR_SHIFT) | index for hour, index in rows], np.int64)


@given(st.lists(SOME, min_size=1, max_size=2 * KEPT), st.data())
def test_a_place_is_where_the_refs_lie(
    groups: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    where = Whereabouts()
    arrays = [refs_of(rows) for rows in groups]
    for _ in range(3 * len(groups)):
        k = data.draw(st.integers(0, len(groups) - 1))
        rows, (hour, indexes, run) = groups[k], where.of(arrays[k])
        hours = {each for each, _ in rows}
        assert hour == (hours.pop() if len(hours) == 1 else None)
        assert indexes.tolist() == [index for _, index in rows]
        stands = [index for _, index in rows]
        in_a_row = hour is not None and stands == list(range(stands[0], stands[0] + len(stands)))
        assert run == (slice(stands[0], stands[-1] + 1) if in_a_row else None)


def test_what_was_noted_is_found_and_equal_refs_are_looked_at() -> None:
    where, refs = Whereabouts(), refs_of([(1, 5), (1, 6)])
    where.note(refs, 1, refs & INDEX_MASK)
    assert where.of(refs).run == slice(5, 7)
    other = refs.copy()
    other[1] += 1
    assert where.of(other).run is None


def test_refs_that_were_asked_for_cannot_be_written_any_more() -> None:
    where, noted, asked = Whereabouts(), refs_of([(1, 5)]), refs_of([(1, 5)])
    where.note(noted, 1, noted & INDEX_MASK)
    where.of(asked)
    for refs in (noted, asked):
        with pytest.raises(ValueError, match="read-only"):
            refs[0] = 7
