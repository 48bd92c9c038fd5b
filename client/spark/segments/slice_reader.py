"""The work of one task: reads slices of hours and returns Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Protocol, TypeVar

import numpy as np

from delaylog.storage.hours.far.sorted_run import RunFacts
from delaylog.storage.layout import INDEX_BITS, Int64Array, StateArray
from pyspark_delaylog.segments.columns import Columns, Records, schema_of
from pyspark_delaylog.segments.errors import DamagedError, RetiredError
from pyspark_delaylog.segments.files import HourFiles, Part, RunFiles, RunPart
from pyspark_delaylog.segments.folder import Folder, GroupTable
from pyspark_delaylog.segments.options import SegmentOptions
from pyspark_delaylog.segments.plan import Piece, RunSlice
from pyspark_delaylog.segments.states import GroupRows, group_rows

PartT = TypeVar("PartT", Part, RunPart)
Taken_contra = TypeVar("Taken_contra", Part, RunPart, contravariant=True)


class Files(Protocol[Taken_contra]):
    """A source of parts: the files of an hour, or runs."""

    def states(self, group: int, part: Taken_contra) -> StateArray:
        """The state entries of a part's rows."""
        ...

    def check_records(self, part: Taken_contra, at: Int64Array) -> None:
        """Verify the records of some rows of a part."""
        ...

    def read_records(self, start: int, size: int) -> bytes:
        """Read a range of the records."""
        ...


class Reading:
    """Reads slices of one folder."""

    def __init__(self, folder: Folder, options: SegmentOptions) -> None:
        self._folder, self._options = folder, options
        self._columns = Columns(folder, schema_of(options))
        numbers = sorted({group.number for topic in folder.topics for group in topic.groups})
        tables = [GroupTable(folder.topics, number, options.wanted) for number in numbers]
        self._tables = [table for table in tables if table.names]

    def batches(self, slices: Iterable[Piece]) -> Iterator[Any]:
        """Yield the rows of slices. DamagedError unless damage is skipped."""
        for piece in slices:
            if isinstance(piece, RunSlice):
                yield from self._run(piece.run)
                continue
            if piece.damaged:
                yield self._columns.damaged(np.full(piece.damaged, piece.hour))
                continue
            try:
                files = HourFiles(
                    self._folder,
                    piece,
                    text=self._options.text,
                    skip=self._options.skip_corrupt,
                )
            except RetiredError:
                continue
            with closing(files):
                for part in files.parts():
                    yield from self._part(files, part)

    def _run(self, run: RunFacts) -> Iterator[Any]:
        options = self._options
        try:
            files = RunFiles(
                self._folder, run, options.wanted, text=options.text, skip=options.skip_corrupt
            )
        except DamagedError:
            if not options.skip_corrupt:
                raise
            # Without the keys the hours of the rows are unknown.
            if options.wanted.takes_damaged:
                yield self._columns.damaged(np.full(run.rows, run.first_key >> INDEX_BITS))
            return
        with closing(files):
            for part in files.parts():
                yield from self._part(files, part)

    def _part(self, files: Files[PartT], part: PartT) -> Iterator[Any]:
        found = [self._rows(files, table, part) for table in self._tables]
        if self._options.text:
            for each in found:
                files.check_records(part, each.at)
        damaged = len(part.rows) - int(np.count_nonzero(part.good))
        for each in found:
            if damaged:
                # Damage found for one group or in the records marks the row for all groups.
                each = self._rows(files, each.table, part)
            if len(each.at):
                rows = part.rows if len(each.at) == len(part.rows) else part.rows[each.at]
                records = Records(files.read_records, rows) if self._options.text else None
                yield self._columns.batch(part.hours[each.at], rows, each, records)
        if damaged and self._options.wanted.takes_damaged:
            yield self._columns.damaged(part.hours[~part.good])

    def _rows(self, files: Files[PartT], table: GroupTable, part: PartT) -> GroupRows:
        entries = files.states(table.number, part)
        options = self._options
        return group_rows(self._folder, options.wanted, part, table, entries, moved=options.moved)
