"""The classes of PySpark's data source interface, or `object` where this version lacks one.

PySpark 3.5 has none of them, 4.0 no stream writer for Arrow, and limits of streaming reads came
with 4.2. A module that needs only a base class imports it from here, so that it loads with every
version; what a version cannot do is refused where Spark asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import pyspark

from pyspark_delaylog.errors import VersionError


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
