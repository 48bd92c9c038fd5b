"""From slices of hours to Arrow batches: what one task does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pyspark_delaylog.segments.columns import Columns, schema_of
from pyspark_delaylog.segments.errors import RetiredError
from pyspark_delaylog.segments.folder import Folder, GroupTable
from pyspark_delaylog.segments.hour_files import HourFiles, Part
from pyspark_delaylog.segments.options import SegmentOptions
from pyspark_delaylog.segments.planning import HourSlice
from pyspark_delaylog.segments.states import GroupRows, group_rows
from pyspark_delaylog.segments.texts import Records


class Reading:
    """Reads slices of one folder."""

    def __init__(self, folder: Folder, options: SegmentOptions) -> None:
        self._folder, self._options = folder, options
        self._columns = Columns(folder, schema_of(options))
        numbers = sorted({group.number for topic in folder.topics for group in topic.groups})
        tables = [GroupTable(folder.topics, number, options.wanted) for number in numbers]
        self._tables = [table for table in tables if table.names]

    def batches(self, slices: Iterable[HourSlice]) -> Iterator[Any]:
        """Raises DamagedError unless damage is skipped."""
        for piece in slices:
            if piece.damaged:
                yield self._columns.damaged(piece.hour, piece.damaged)
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
            with files:
                for part in files.parts():
                    yield from self._part(files, piece.hour, part)

    def _part(self, files: HourFiles, hour: int, part: Part) -> Iterator[Any]:
        found = [self._rows(files, table, hour, part) for table in self._tables]
        if self._options.text:
            for each in found:
                files.check_records(part, each.at)
        damaged = len(part.rows) - int(np.count_nonzero(part.good))
        for each in found:
            if damaged:
                # What one group's states or the records said of a row counts for all.
                each = self._rows(files, each.table, hour, part)
            if len(each.at):
                rows = part.rows if len(each.at) == len(part.rows) else part.rows[each.at]
                records = Records(files, rows) if self._options.text else None
                yield self._columns.batch(hour, rows, each, records)
        if damaged and self._options.wanted.takes_damaged:
            yield self._columns.damaged(hour, damaged)

    def _rows(self, files: HourFiles, table: GroupTable, hour: int, part: Part) -> GroupRows:
        entries = files.states(table.number, part)
        return group_rows(
            self._folder,
            self._options.wanted,
            hour,
            table,
            part.rows,
            entries,
            part.good,
            moved=self._options.moved,
        )
