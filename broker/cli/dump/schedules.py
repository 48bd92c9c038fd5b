"""`delaylog dump` of files of schedules: definitions without bodies, and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from delaylog.broker.cli.dump.contents import Lines
from delaylog.broker.engine.schedules.columns import BLOCK_ROWS, WIDTH, Column
from delaylog.broker.engine.schedules.definitions import HEADER, decode
from delaylog.broker.engine.schedules.schedule import PROGRESS, Schedule
from delaylog.storage.files.file_system import File

_ROW_BYTES: Final = WIDTH * 8


def dump_definitions(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each record; one at the end if that is not whole, as a checkpoint may say."""
    at, end = 0, file.size()
    while at < end:
        head = file.pread(HEADER.size, at)
        size, number = HEADER.unpack(head)[1:] if len(head) == HEADER.size else (0, 0)
        packed = decode(file.pread(HEADER.size + min(size, end), at), number, size)
        if packed is None:
            yield {"offset": at, "error": "no whole record from here on"}
            return
        one = Schedule.unpack(packed)
        said: dict[str, Any] = {"topic": one.topic, "schedule": one.name, "note": one.note}
        timing, rules = one.spec.timing.as_dict(), one.spec.rules.as_dict()
        yield {"offset": at, "number": number, **said, **timing, **rules}
        at += HEADER.size + size


def dump_schedule_rows(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each slot that is in use."""
    for start in range(0, file.size(), BLOCK_ROWS * _ROW_BYTES):
        raw = file.pread(BLOCK_ROWS * _ROW_BYTES, start)
        if len(raw) % _ROW_BYTES:
            yield {"offset": start, "error": "the file ends within a row"}
            return
        block = np.frombuffer(raw, "<i8").reshape(WIDTH, -1)
        for at in np.flatnonzero(block[Column.NUMBER]).tolist():
            row = block[:, at].tolist()
            known = {name.name.lower(): row[name] for name in Column if name != Column.PROGRESS}
            progress = dict(zip(PROGRESS, row[Column.PROGRESS :], strict=True))
            yield {"slot": start // _ROW_BYTES + at, **known, **progress}
