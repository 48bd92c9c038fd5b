"""Parts that are smaller than a slice: several are published in one, within all of its bounds.

Purpose: a load of many small parts takes as long as its rows do, and not a turn of the loop and a
sync for each part. Method: the work of the publisher is run step by step, with a timer that counts
its frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.transactions import publisher
from delaylog.broker.engine.transactions.table import (
    READ_BYTES_MAX,
    READ_PARTS_MAX,
    Unpublished,
)
from delaylog.storage.log.payloads import PART
from tests.broker.engine.transactions.test_transactions import bodies, calls, prepared, publish


def run(host: Any, frame_s: float) -> tuple[list[int], int]:
    """(rows published by each slice, number of reads) of the whole publication."""
    table = calls(host).table
    slices, reads = [], 0
    work, before = calls(host).publishing(host.now_ms, frame_s), table.published_rows
    for step in work:
        if callable(step):
            reads += 1
            step()
        elif step is not None:
            host.sync()
        if table.published_rows != before:
            slices.append(table.published_rows - before)
            before = table.published_rows
    return slices, reads


@pytest.fixture
def large_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLICE_ROWS_FIRST", 100)
    monkeypatch.setattr(publisher, "SLICE_ROWS_MIN", 100)


@pytest.mark.usefixtures("large_slices")
def test_a_slice_has_several_until_its_time_is_over(open_host: Any) -> None:
    """Four frames of 0.6 ms are the first that take two milliseconds; one read serves all."""
    host = open_host()
    prepared(host, parts=10, rows=3)
    assert run(host, 0.000_6) == ([12, 12, 6], 1)
    host.turn()
    assert sorted(host.bodies(), key=int) == bodies(0, 30)
    host.check_counts()


@pytest.mark.usefixtures("large_slices")
def test_a_slice_has_several_until_it_has_its_rows(open_host: Any) -> None:
    """The part that does not fit in the rest continues in the next slice."""
    host = open_host()
    prepared(host, parts=5, rows=40)
    slices, _ = run(host, 0.000_001)
    assert slices[0] == 100
    assert sum(slices) == 200
    host.turn()
    assert sorted(host.bodies(), key=int) == bodies(0, 200)


@pytest.mark.usefixtures("large_slices")
def test_small_parts_leave_the_slice_of_a_large_one_short(open_host: Any) -> None:
    """Their cost is that of their frames, so the rows of the next slice must not grow with it."""
    host = open_host()
    txn = calls(host)
    txn.begin("x", host.now_ms)
    for part in range(50):
        txn.stage("x", bodies(part, 1), host.now_ms, part=part)
    txn.stage("x", bodies(50, 1_000), host.now_ms, part=50)
    txn.commit("x", host.now_ms, *((part, 0, 1) for part in range(50)), (50, 0, 1_000))
    host.sync()
    slices, _ = run(host, 0.000_6)
    assert next(rows for rows in slices if rows > 4) == 100


@pytest.mark.usefixtures("large_slices")
def test_parts_of_dropped_topics_are_skipped_between_others(open_host: Any) -> None:
    """A slice goes on behind a part that nobody sees, and counts its rows as ended.

    The first part is one of them, and is skipped before anything is read.
    """
    host = open_host()
    txn = calls(host)
    txn.begin("x", host.now_ms)
    for part in range(9):
        topic = "t" if part % 3 else "gone"
        txn.stage("x", bodies(part * 2, 2), host.now_ms, part=part, topic=topic)
    txn.commit("x", host.now_ms, *((part, 0, 2) for part in range(9)))
    host.sync()
    topics.drop_topic(host.engine.state, host.engine.topic("gone"), host.now_ms)
    host.sync()
    assert run(host, 0.000_1)[0] == [2, 16]
    assert txn.look("x").counts == (12, 0, 0, 0, 6)
    host.turn()
    wanted = [body for part in range(9) if part % 3 for body in bodies(part * 2, 2)]
    assert sorted(host.bodies(), key=int) == wanted


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([10], 1),
        ([READ_BYTES_MAX + 1, 10], 1),
        ([10, READ_BYTES_MAX], 1),
        ([10, READ_BYTES_MAX - 10, 1], 2),
        ([1] * (READ_PARTS_MAX + 1), READ_PARTS_MAX),
        ([2**32 - 1, 2**32 - 1], 1),
    ],
)
def test_how_many_are_read_together(sizes: list[int], count: int) -> None:
    """Always the next one, and others within both limits."""
    parts = np.zeros(len(sizes) + 1, PART)
    parts["position"], parts["bytes"][1:] = np.arange(len(parts)) * 100, sizes
    one = Unpublished(1, "x", 0, 0, parts, 1, 1, 0, at=1)
    assert one.next_parts() == [100 * number for number in range(1, count + 1)]


@pytest.mark.usefixtures("large_slices")
def test_a_restart_in_between_publishes_the_rest(open_host: Any) -> None:
    """What a slice of several frames has published is not published again."""
    host = open_host()
    prepared(host, parts=10, rows=3)
    calls(host).slices(host.now_ms, 1, 0.000_6)
    host.restart()
    assert calls(host).look("x").published == 12
    publish(host)
    assert sorted(host.bodies(), key=int) == bodies(0, 30)
