"""Epochs and their tables: what two logs have in common follows from their tables alone.

Method: examples of each branch, and random histories of leaderships compared byte by byte.
"""

from __future__ import annotations

from random import Random

import pytest

from delaylog.replication.epochs import (
    COUNTER_MAX,
    NODE_MAX,
    EpochTable,
    common_end,
    epoch_counter,
    epoch_node,
    make_epoch,
)
from delaylog.replication.errors import DivergedError, PeerError
from tests.effort import tries


def test_an_epoch_is_a_counter_above_a_node() -> None:
    epoch = make_epoch(5, 3)
    assert epoch == 0x50003
    assert (epoch_counter(epoch), epoch_node(epoch)) == (5, 3)
    assert make_epoch(6, 0) > make_epoch(5, NODE_MAX)
    assert make_epoch(COUNTER_MAX, NODE_MAX) == 2**64 - 1


@pytest.mark.parametrize(("counter", "node"), [(COUNTER_MAX + 1, 0), (1, NODE_MAX + 1), (-1, 0)])
def test_an_epoch_has_64_bits(counter: int, node: int) -> None:
    with pytest.raises(AssertionError):
        make_epoch(counter, node)


def test_a_table_tells_the_epoch_of_a_place() -> None:
    table = EpochTable([(1, 0), (4, 100), (6, 250)])
    assert [table.at(p) for p in (0, 99, 100, 249, 250, 9_000)] == [1, 1, 4, 4, 6, 6]
    assert [table.before(p) for p in (0, 1, 100, 101, 250, 251)] == [0, 1, 1, 4, 4, 6]
    assert table.last_epoch == 6


def test_a_cut_forgets_what_begins_behind_it() -> None:
    table = EpochTable([(1, 0), (4, 100), (6, 250)])
    table.cut(101)
    assert table.entries() == ((1, 0), (4, 100))
    table.cut(100)
    assert table.entries() == ((1, 0),)
    table.cut(0)
    assert (table.entries(), table.last_epoch) == ((), 0)


@pytest.mark.parametrize(
    ("position", "left"), [(0, 3), (1, 3), (100, 3), (101, 2), (250, 2), (251, 1), (900, 1)]
)
def test_what_only_speaks_of_dropped_frames_is_forgotten(position: int, left: int) -> None:
    table = EpochTable([(1, 0), (4, 100), (6, 250)])
    asked = table.before(position)
    table.forget(position)
    assert len(table.entries()) == left
    assert table.before(position) == asked


def test_times_follow_their_epochs() -> None:
    table = EpochTable([(1, 0)])
    for epoch, start, began_ms in ((2, 100, 20), (3, 200, 30), (4, 300, 40)):
        table.begin(epoch, start, None, began_ms)
    assert table.newest(2) == [(4, 40), (3, 30)]
    table.cut(300)
    table.forget(200)
    assert table.newest(9) == [(3, 30), (2, 20)]


@pytest.mark.parametrize("entry", [(4, 200), (3, 200), (5, 100), (5, 99)])
def test_epochs_begin_in_order(entry: tuple[int, int]) -> None:
    table = EpochTable([(1, 0), (4, 100)])
    with pytest.raises(DivergedError):
        table.begin(*entry)


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "common"),
    [
        ([], 0, [(1, 0)], 50, 0),
        ([(1, 0)], 50, [], 0, 0),
        ([(1, 0)], 50, [(1, 0)], 90, 50),
        ([(1, 0), (2, 500)], 700, [(1, 0), (3, 400)], 900, 400),
        ([(1, 0), (3, 400)], 900, [(1, 0), (2, 500)], 700, 400),
        ([(1, 0), (2, 500)], 700, [(1, 0)], 300, 300),
        ([(1, 0)], 10, [(2, 0)], 10, 0),
        # One has forgotten its oldest leaderships: what is shared still tells.
        ([(7, 900), (9, 1_000)], 1_100, [(1, 0), (7, 900)], 950, 950),
        # Nothing is shared, and one does not begin at the beginning.
        ([(1, 0)], 500, [(8, 1_000)], 2_000, None),
        ([(8, 1_000)], 2_000, [(1, 0)], 500, None),
    ],
)
def test_common_end(mine: list, my_end: int, theirs: list, their_end: int, common: object) -> None:
    assert common_end(tuple(mine), my_end, tuple(theirs), their_end) == common


def test_one_epoch_in_two_places_is_no_sound_pair() -> None:
    with pytest.raises(PeerError, match="begins at 10 and at 12"):
        common_end(((1, 0), (2, 10)), 20, ((1, 0), (2, 12)), 20)


def test_common_end_is_where_the_bytes_part() -> None:
    for seed in range(tries(300)):
        random = Random(seed)
        logs: list[list[int]] = [[], [], []]
        # Each leader goes on from some prefix of a log, as adopted, and is copied in part.
        for epoch in range(1, 9):
            leader = random.choice(logs)[:]
            leader = leader[: random.randint(0, len(leader))] + [epoch] * random.randint(1, 5)
            logs[random.randrange(3)] = leader
            follower = random.randrange(3)
            logs[follower] = leader[: random.randint(0, len(leader))]

        def table(log: list[int]) -> tuple[tuple[int, int], ...]:
            return tuple((e, p) for p, e in enumerate(log) if p == 0 or log[p - 1] != e)

        for a in logs:
            for b in logs:
                shared = 0
                while shared < min(len(a), len(b)) and a[shared] == b[shared]:
                    shared += 1
                assert common_end(table(a), len(a), table(b), len(b)) == shared, seed
