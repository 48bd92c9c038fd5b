"""The ready queues of a group: their counts, and their order once a filter was closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.ready import ready_queues
from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ready_queues import ReadyQueues
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.idle import look_after_groups
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray


def rows_of(refs: Int64Array) -> tuple[Int64Array, RowArray]:
    return refs, np.zeros(len(refs), INDEX_ENTRY)


def test_what_ended_is_not_counted_as_living(tmp_path: Path) -> None:
    def make_run() -> ScratchQueue:
        return ScratchQueue(OsFileSystem(), str(tmp_path / "run"))

    queue = ReadyQueues(make_run, KeyGate(make_run))
    queue.push(np.array([1, 2, 3]), None)
    queue.left(2)
    assert (len(queue), queue.living) == (3, 1)
    queue.pop(2, rows_of)
    queue.dropped(1)
    assert (len(queue), queue.living) == (1, 0)
    queue.pop(1, rows_of)
    queue.dropped(1)
    queue.left(1)
    queue.push(np.array([4, 5]), None)
    assert queue.living == 1
    queue.clear()
    assert (len(queue), queue.living) == (0, 0)


def test_changes_of_the_order_leave_no_queues(host: Any) -> None:
    """Each would take a kilobyte until the next receive."""
    host.send([b"1", b"2"])
    ready = host.topic.default.ready
    for _ in range(20):
        host.configure(order="priority")
        host.configure(order="time")
    assert len(ready._queues) == 2
    host.configure(order="priority")
    host.send([b"3", b"4"], priority=[1, 2])
    host.configure(order="time")
    assert host.bodies() == [b"1", b"2", b"4", b"3"]


@pytest.mark.parametrize("late", [2, 20])
def test_priorities_after_a_filter_is_closed(
    host: Any, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """What was sorted for it, what came after that, and what comes later go out in one order."""
    monkeypatch.setattr(ready_queues, "SORT_OUT_REFS", 8)
    host.configure(order="priority")
    first = [5, 1, 3]
    host.send([b"%d" % p for p in first], priority=first)
    group, state = host.topic.default, host.engine.state
    host.peek(1, only=TagFilter(frozenset([b"red"])))
    middle = [2, 4] * (late // 2)
    host.send([b"%d" % p for p in middle], priority=middle)
    host.advance(61_000)
    looks = 0
    while group.ready.filtered:
        look_after_groups(state, host.now_ms)
        looks += 1
    assert looks == -(-late // 8), "a few refs at a time"
    host.send([b"9", b"0"], priority=[9, 0])
    assert host.bodies() == [b"%d" % p for p in sorted([*first, *middle, 9, 0], reverse=True)]
