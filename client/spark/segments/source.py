"""SegmentSource: the format `delaylog-segments` of Spark.

There are two readers, because Spark refuses a reader with filter pushdown while
`spark.sql.python.filterPushdown.enabled` is off; the caller determines which one is created.
Filters are pushed down only with the option `pushFilters`: Spark 4.3 caches the plan of one query
on a DataFrame and reuses it for a later query without filters, which then silently misses rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pyspark_delaylog.segments.folder import read_folder
from pyspark_delaylog.segments.options import SegmentOptions, parse_options
from pyspark_delaylog.segments.planning import Piece, plan

if TYPE_CHECKING:
    # PySpark 4.0 has none.
    from pyspark.sql.datasource import Filter

FORMAT: Final = "delaylog-segments"
_PUSHING: Final = "data_source_pushdown_filters"
"""The Spark worker module that pushes filters to a reader."""


@dataclass
class SegmentPartition(InputPartition):
    """The slices that one task reads."""

    slices: tuple[Piece, ...]

    def __init__(self, slices: Iterable[Piece]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)


class SegmentSource(DataSource):
    """`spark.read.format("delaylog-segments").load("/path/of/the/data/folder")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The schema that the options select."""
        from pyspark_delaylog.segments.columns import schema_of

        return from_arrow_schema(schema_of(self._options))

    def reader(self, schema: StructType) -> SegmentReader:
        """Create a reader, with filter pushdown if Spark is about to push filters."""
        known = self.schema()
        if schema.fieldNames() != known.fieldNames():
            raise ValueError(f"the columns are fixed: {', '.join(known.fieldNames())}")
        if self._options.push_filters and _filters_come():
            return PushdownSegmentReader(self._options)
        return SegmentReader(self._options)


class SegmentReader(DataSourceReader):
    """Plans on the driver, and reads in the tasks."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options
        self._folder = read_folder(options.path)

    def partitions(self) -> list[InputPartition]:
        """Partitions of similar size; one empty partition if there is nothing to read."""
        tasks = plan(self._folder, self._options)
        return [SegmentPartition(task) for task in tasks] or [SegmentPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the slices of a task as Arrow batches."""
        from pyspark_delaylog.segments.reading import Reading

        assert isinstance(partition, SegmentPartition)
        return Reading(self._folder, self._options).batches(partition.slices)


class PushdownSegmentReader(SegmentReader):
    """A reader that applies filters on hour, deliver_at, namespace, topic, group and state."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take the supported filters; the others are returned to Spark."""
        for each in filters:
            path: tuple[str, ...] = getattr(each, "attribute", ())
            wanted = None
            if len(path) == 1 and hasattr(each, "value"):
                wanted = self._options.wanted.narrowed(path[0], type(each).__name__, each.value)
            if wanted is None:
                yield each
            else:
                self._options = replace(self._options, wanted=wanted)


def _filters_come() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if PurePath(frame.f_code.co_filename).stem == _PUSHING:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
