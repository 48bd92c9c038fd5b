"""Verify the files of schedules: the rows of the newest checkpoint, and the definition of each."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.schedules.columns import Column, Columns
from delaylog.broker.engine.schedules.definitions import Definitions
from delaylog.broker.engine.schedules.rows_file import RowsFile, read_rows
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.schedules.table import FOLDER, named_files
from delaylog.broker.verify.physical_log import LogRange
from delaylog.broker.verify.report import Report
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.log.frames import Frame

_SLICE: Final = 1_024


def verify_schedules(
    fs: FileSystem, folder: str, saved: Mapping[str, Any], log: LogRange, report: Report
) -> Generator[None, None, None]:
    """Check what a checkpoint (`saved`) names. Definitions in the log are checked with the log."""
    place, named = f"{folder}/{FOLDER}", named_files(saved)
    present = set(fs.listdir(place)) if fs.exists(place) else set()
    for name in sorted(present):
        report.files += 1
        report.bytes_read += named.get(name, 0)
    needed = saved["log_from"]
    if needed < log.first:
        what = f"schedules need the log from {needed}, and it begins at {log.first}"
        report.damaged(FOLDER, 0, what)
    definitions = Definitions(fs, place, _no_frame, Columns())
    try:
        for block in read_rows(fs, place, RowsFile(*saved["rows"])):
            used = np.flatnonzero((block[Column.NUMBER] != 0) & (block[Column.PLACE] >= 0))
            for at, slot in enumerate(used.tolist()):
                row = block[:, slot].tolist()
                number, where, size = row[Column.NUMBER], row[Column.PLACE], row[Column.SIZE]
                one = Schedule.unpack(definitions.read(number, where, size))
                if (one.number, one.topic) != (number, row[Column.TOPIC]):
                    raise CorruptionError(
                        f"the definition of schedule {one.name!r} in the row of another",
                        path=f"{place}/{RowsFile(*saved['rows']).name}",
                        position=slot,
                    )
                if at % _SLICE == 0:
                    yield
    except CorruptionError as error:
        report.damaged(error.path.removeprefix(f"{folder}/"), error.position, error.what)
    finally:
        definitions.close()


def _no_frame(position: int) -> Frame:
    raise AssertionError(position)
