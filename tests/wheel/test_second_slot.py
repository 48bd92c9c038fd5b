"""Slots of a second: slices are exact against a plain sort, loads leave out what came live."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.wheel import Entries, sort_entries
from delaylog.wheel.second_slot import SecondSlot, list_of

KEYS = st.tuples(st.integers(0, 40), st.integers(1, 1_000))


def entries(keys: list[tuple[int, int]]) -> Entries:
    columns = np.array(keys, np.int64).reshape(-1, 2).T
    return Entries(columns[0], columns[1], columns[1] % 3)


def keys_of(taken: Entries) -> list[tuple[int, int]]:
    assert (taken.lanes == taken.refs % 3).all(), "columns stay together"
    return list(zip(taken.due_ms.tolist(), taken.refs.tolist(), strict=True))


def drain(slot: SecondSlot, now: int, limit: int) -> list[tuple[int, int]]:
    """Slices until nothing is due, each with something in it."""
    found: list[tuple[int, int]] = []
    while (head := slot.head_ms()) is not None and head <= now:
        few = slot.take_few(now, limit)
        if few is not None:
            assert len(few) <= limit
            assert all(lane == ref % 3 for _, ref, lane in few)
        part = keys_of(slot.take(now, limit)) if few is None else [key[:2] for key in few]
        assert len(part) >= 1
        found += part
    return found


def insert(slot: SecondSlot, added: Entries, one_by_one: bool) -> None:
    """Add live entries as columns or as tuples."""
    if one_by_one:
        for entry in list_of(added):
            slot.insert_one(entry)
    else:
        slot.insert(added)


@given(
    st.lists(
        st.tuples(st.lists(KEYS, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=20
    ),
    st.integers(1, 40),
    st.integers(0, 45),
)
def test_slices_are_exact(
    frames: list[tuple[list[tuple[int, int]], bool]], limit: int, now: int
) -> None:
    """Many runs, a small limit: slice after slice equals the sorted whole."""
    slot = SecondSlot(0)
    for run, one_by_one in frames:
        insert(slot, entries(run), one_by_one)
        slot.take(-1, limit)
    runs = [run for run, _ in frames]
    expected = sorted(key for run in runs for key in run if key[0] <= now)
    assert drain(slot, now, limit) == expected
    rest = sorted(key for run in runs for key in run if key[0] > now)
    assert drain(slot, 100, limit) == rest
    assert slot.idle


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.data())
def test_a_load_adds_what_did_not_come_live(due: list[int], data: st.DataObject) -> None:
    """The chain holds all rows; those from the first live one on are there already."""
    cut = data.draw(st.integers(0, len(due)))
    keys = [(at, row + 1) for row, at in enumerate(due)]
    slot = SecondSlot(0)
    for key in keys[cut:]:
        insert(slot, entries([key]), data.draw(st.booleans()))
    slot.load(sort_entries(entries(keys)))
    assert drain(slot, 100, 1_000) == sorted(keys)
    assert slot.loaded
    assert slot.idle


def test_live_entries_of_a_wrapped_epoch_tag_do_not_hide_stored_ones() -> None:
    """Tag 0 follows tag 2,047: the row number, not the whole ref, tells what came live."""
    old, new = (2_047 << 32) | 1, 2
    slot = SecondSlot(0)
    slot.insert(entries([(5, new)]))
    slot.load(entries([(4, old), (5, new)]))
    assert drain(slot, 100, 10) == [(4, old), (5, new)]


def test_sorted_entries_come_back_as_they_are() -> None:
    """Sorting copies only what needs it."""
    for keys in ([], [(1, 1)], [(1, 1), (1, 2), (3, 1)], [(1, 2), (2, 1)]):
        given_entries = entries(keys)
        assert sort_entries(given_entries) is given_entries
    assert keys_of(sort_entries(entries([(2, 1), (1, 2), (1, 1)]))) == [(1, 1), (1, 2), (2, 1)]
