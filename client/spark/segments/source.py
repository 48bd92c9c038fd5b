"""SegmentSource: the format `delaylog-segments` of Spark.

Options narrow what is read; filters of Spark are not pushed down. Spark (4.1 to 4.3) stores the
reader to which it pushed filters with the DataFrame or view, and uses it for every plan on that one
until it pushes other filters. A later query without filters, or the other side of a join, would
silently miss rows, and a reader is told nothing by which it could notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pyspark_delaylog.segments.folder import read_folder
from pyspark_delaylog.segments.options import SegmentOptions, parse_options
from pyspark_delaylog.segments.plan import Piece, plan

FORMAT: Final = "delaylog-segments"


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
        """Create a reader."""
        known = self.schema()
        if schema.fieldNames() != known.fieldNames():
            raise ValueError(f"the columns are fixed: {', '.join(known.fieldNames())}")
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
        from pyspark_delaylog.segments.slice_reader import Reading

        assert isinstance(partition, SegmentPartition)
        return Reading(self._folder, self._options).batches(partition.slices)
