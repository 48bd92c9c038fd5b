"""What is ready in a group, counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ready_queues import ReadyQueues
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray


def rows_of(refs: Int64Array) -> tuple[Int64Array, RowArray]:
    return refs, np.zeros(len(refs), INDEX_ENTRY)


def test_what_ended_is_not_counted_as_living(tmp_path: Path) -> None:
    def make_run() -> RunFile:
        return RunFile(OsFileSystem(), str(tmp_path / "run"))

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
