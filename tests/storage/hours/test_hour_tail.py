"""Tails: a look-up that breaks loose blocks up while a worker sorts them loses no row."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.hours.tails import FarPile, HourTail, TailChunk, TailPile, sort_loose
from delaylog.storage.layout import INDEX_ENTRY
from delaylog.storage.messages.rows import PlacedRows

HOURS = 6


def loose_block(number: int, rows_an_hour: int) -> PlacedRows:
    """Rows of six hours, so thinly spread that the pile keeps them in one block."""
    n = HOURS * rows_an_hour
    rows = np.zeros(n, INDEX_ENTRY)
    rows["size"] = 1
    rows["offset"] = np.arange(n)
    first = {1: 1, 2: 3, 3: 6, 4: 10}[number]
    rows["global_index"] = np.tile(np.arange(first, first + rows_an_hour), HOURS)
    starts = list(range(0, n + 1, rows_an_hour))
    return PlacedRows(rows, bytes(n), list(range(HOURS)), starts, None, number)


def test_a_look_up_during_a_sort_wins() -> None:
    """The sorted copy is thrown away when its blocks were broken up and others came meanwhile."""
    pile = TailPile(FarPile())
    pile.add(loose_block(1, 2))
    pile.add(loose_block(2, 3))
    blocks = pile.begin_merge(10)
    merged = sort_loose(blocks)
    assert pile.tail(0) is not None
    pile.add(loose_block(3, 4))
    pile.add(loose_block(4, 2))
    pile.end_merge(blocks, merged)
    for hour in range(HOURS):
        tail = pile.tail(hour)
        assert tail is not None
        assert tail.rows(np.arange(1, 12))["global_index"].tolist() == list(range(1, 12))


def test_parts_leave_loose_blocks_whole() -> None:
    """Every row of an hour with its block, from chunks and loose blocks; nothing is broken up."""
    pile = TailPile(FarPile())
    pile.add(loose_block(1, 2))
    pile.add(loose_block(2, 3))
    assert pile.tail(0) is not None
    pile.add(loose_block(3, 4))
    for hour in range(HOURS):
        parts = pile.parts(hour)
        indexes = [index for rows, _ in parts for index in rows["global_index"].tolist()]
        assert sorted(indexes) == list(range(1, 10))
        assert all(len(data) >= int(rows["offset"].max()) for rows, data in parts)
    assert pile.parts(HOURS) == []
    assert pile.has_loose


def test_begins_of_records_that_follow_one_another() -> None:
    """A run asks for whole records with the rows as they are, for begins with smaller sizes."""
    rows = np.zeros(4, INDEX_ENTRY)
    rows["size"], rows["offset"] = 3, [0, 3, 6, 9]
    rows["global_index"] = [1, 2, 3, 4]
    tail = HourTail()
    tail.add(TailChunk(1, rows, b"abcdefghijkl", dense=True, position=1))
    wanted, run = np.array([2, 3, 4]), slice(2, 5)
    found = tail.rows(wanted, run)
    assert found["global_index"].tolist() == [2, 3, 4]
    assert tail.records(wanted, found, run) == b"defghijkl"
    found["size"] = 1
    assert tail.records(wanted, found, run) == b"dgj"


def _frame(number: int, hours: list[int], refused: int = 0) -> PlacedRows:
    """One row in each hour; `refused` bytes of the block belong to rows that were not accepted."""
    rows = np.zeros(len(hours), INDEX_ENTRY)
    rows["size"] = 10
    rows["global_index"] = number
    order = np.arange(len(hours)) if refused else None
    starts = list(range(len(hours) + 1))
    return PlacedRows(rows, bytes(10 * len(hours) + refused), hours, starts, order, number)


@pytest.mark.parametrize("way", ["chunks", "broken up", "sorted"])
def test_a_pile_that_is_never_empty_weighs_what_is_in_it(way: str) -> None:
    """Traffic without a pause: what is flushed leaves the sum, its overhead included."""
    hours = list(range(3 if way == "chunks" else 10))
    pile = TailPile(FarPile())
    pile.add(_frame(1, hours, refused=1))
    alone = pile.size_bytes
    for number in range(2, 50):
        pile.add(_frame(number, hours, refused=number))
        pile.add(_frame(number, []))
        if way == "broken up":
            pile.tail(0)
        elif way == "sorted":
            blocks = pile.begin_merge(number)
            pile.end_merge(blocks, sort_loose(blocks) if blocks else [])
        for hour, chunks in pile.take(upto=number):
            pile.drop(hour, chunks)
        assert pile.size_bytes == alone + number - 1
