"""DelaylogSource: the entry point of the format `delaylog` for Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.options import Options
from pyspark_delaylog.schema import SOURCE_SCHEMA
from pyspark_delaylog.versions import need_stream_sink, need_stream_source
from pyspark_delaylog.writers import DelaylogBatchWriter, DelaylogStreamWriter


class DelaylogSource(DataSource):
    """`format("delaylog")`. Options are parsed once Spark asks for a sink or a stream."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "delaylog"

    def schema(self) -> StructType:
        """The schema of a stream of messages."""
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """Refused: a second read would not return the same messages."""
        raise OptionError(
            "format delaylog: a queue cannot be read as a batch; use spark.readStream, or "
            "format delaylog-segments for the broker's files"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DelaylogBatchWriter:
        """The batch sink."""
        self._only_append(overwrite, '.mode("append"), or INSERT INTO in SQL')
        return DelaylogBatchWriter(self._parsed(), schema)

    # Spark names the methods.
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """The streaming sink."""
        need_stream_sink()
        self._only_append(overwrite, '.outputMode("append")')
        writer = DelaylogStreamWriter(self._parsed(), schema)
        writer.check_broker()
        return writer

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """The consuming stream."""
        need_stream_source()
        from pyspark_delaylog.claims import DelaylogClaimReader

        reader = DelaylogClaimReader(self._parsed(), schema)
        reader.check_broker()
        return reader

    def _parsed(self) -> Options:
        return Options.parse(self.options)

    def _only_append(self, overwrite: bool, instead: str) -> None:
        if overwrite:
            raise OptionError(
                f"format delaylog: sent messages cannot be overwritten; write {instead}"
            )
