"""What differs between versions of PySpark: its base classes, and how it finds our formats.

PySpark 3.5 has no data sources, 4.0 no stream writer for Arrow, and limits of streaming reads came
with 4.2. A module that needs only a base class imports it from here, so that it loads with every
version: where a version lacks a class, it is `object`. What a version cannot do is refused where
Spark asks for it.

Spark searches all modules named `pyspark_…` in a Python worker of the driver. One that cannot be
imported ends the search, and every format in Python becomes DATA_SOURCE_NOT_FOUND, without a cause.
So a failed import must not leave `DefaultSource`: an `Unloaded` class reports it when a program
uses the format. Nothing here imports more than PySpark and `errors`.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

import pyspark
from pyspark import SparkFiles
from pyspark.errors import PySparkException

from pyspark_delaylog.errors import LoadError, VersionError

# --------------------------------------------------------- classes of the data source interface


def _found(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name, object)
    except ImportError:
        return object


_DATA_SOURCES: Final = "pyspark.sql.datasource"
DataSource: Any = _found(_DATA_SOURCES, "DataSource")
DataSourceArrowWriter: Any = _found(_DATA_SOURCES, "DataSourceArrowWriter")
DataSourceStreamArrowWriter: Any = _found(_DATA_SOURCES, "DataSourceStreamArrowWriter")
WriterCommitMessage: Any = _found(_DATA_SOURCES, "WriterCommitMessage")
_READ_LIMIT: Final = _found("pyspark.sql.streaming.datasource", "ReadLimit")


def need_formats() -> None:
    """Raises VersionError with PySpark 3.5."""
    if DataSource is object:
        _refuse("formats in Python need", "4.0", "write with pyspark_delaylog.write_frame")


def need_stream_sink() -> None:
    """Raises VersionError before PySpark 4.1."""
    if DataSourceStreamArrowWriter is object:
        _refuse("the streaming sink needs", "4.1", "write with write_frame in foreachBatch")


def need_stream_source() -> None:
    """Raises VersionError before PySpark 4.2."""
    if _READ_LIMIT is object:
        _refuse("the consuming stream needs", "4.2", "install a newer one")


def _refuse(what: str, least: str, instead: str) -> None:
    raise VersionError(
        f"{what} PySpark {least} or newer, this is {pyspark.__version__}; {instead} "
        "(see Versions of PySpark in docs/SPARK.md)"
    )


# ------------------------------------------------- what Spark gets for the names of our formats

_FOUND: Final = "DATA_SOURCE_ALREADY_EXISTS"
"""How Spark refuses a format that it has found itself."""
_OF_STREAMS: Final = "streaming_job"
"""The folder in which the planner of a consuming stream searches files of `--py-files` (4.2 and
4.3). Spark copies them into the one above it."""


class Unloaded(DataSource):
    """A format whose class cannot be imported here. Spark pickles it by its name."""

    format: ClassVar[str]
    module: ClassVar[str]
    package: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises LoadError with the cause."""
        super().__init__(options)
        try:
            import_module(self.module)
        except Exception as error:
            raise LoadError(
                f"format {self.format} cannot be loaded by the Python of Spark's workers, "
                f"{sys.executable}: {type(error).__name__}: {error}. Install there: "
                f"pip install '{self.package}', or let PYSPARK_PYTHON name a Python that has it"
            ) from error
        raise LoadError(f"format {self.format} could not be loaded before: start a new session")


class UnloadedSource(Unloaded):
    """In place of DelaylogSource."""

    format, module, package = "delaylog", "pyspark_delaylog.source", "pyspark-delaylog"


class UnloadedSegments(Unloaded):
    """In place of SegmentSource."""

    format, module = "delaylog-segments", "pyspark_delaylog.segments.source"
    package = "pyspark-delaylog[folders]"


def loaded_source() -> Any:
    """DelaylogSource, or UnloadedSource if it cannot be imported."""
    return _loaded(UnloadedSource, "DelaylogSource")


def loaded_segments() -> Any:
    """SegmentSource, or UnloadedSegments if it cannot be imported."""
    return _loaded(UnloadedSegments, "SegmentSource")


def register(spark: Any) -> None:
    """Register both formats with a session, where Spark has not found them itself.

    Streams then find the package too, if it was sent by `--py-files`.

    Raises VersionError with PySpark 3.5, and ImportError if this Python lacks a package of
    `format("delaylog")`.
    """
    need_formats()
    for source in (import_module(UnloadedSource.module).DelaylogSource, loaded_segments()):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:
            if error.getCondition() != _FOUND:
                raise
    # Without a driver in this process (Spark Connect) there is nothing to link.
    with suppress(AssertionError, OSError):
        Path(SparkFiles.getRootDirectory(), _OF_STREAMS).symlink_to(".")


def _loaded(unloaded: type[Unloaded], name: str) -> Any:
    try:
        return getattr(import_module(unloaded.module), name)
    except Exception:
        return unloaded
