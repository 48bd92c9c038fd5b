"""Checks the columns of a DataFrame on the driver, before any task starts.

A column is sent or refused, never ignored silently. Only the schema is checked here; `columns`
converts the rows of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from pyspark_delaylog.columns import TYPES
from pyspark_delaylog.errors import SchemaError
from pyspark_delaylog.options import Options

TEXT: Final = (StringType, VarcharType, CharType)
HEADERS: Final = "array<struct<key string, value binary>>"

SOURCE_SCHEMA: Final = from_arrow_schema(
    pa.schema(
        [
            *((name, TYPES[name]) for name in ("value", "deliver_at", "id", "key")),
            ("topic", pa.string()),
            ("priority", TYPES["priority"]),
            ("attempts", pa.int32()),
            ("headers", TYPES["headers"]),
            ("ref", pa.int64()),
        ]
    )
)
"""The columns of a stream of messages."""


def check_sink_schema(schema: StructType, options: Options) -> None:
    """Raises SchemaError, which names the wrong column and the expected type."""
    due = options.delay_column
    known = {due if name == "deliver_at" else name: rule for name, rule in _KNOWN.items()}
    names = schema.fieldNames()
    for name in names:
        if name not in known:
            raise SchemaError(
                f"column {name!r} is not known; rename or drop it. The columns are "
                f"{', '.join(known)}{_case_hint(name, known)}"
            )
        if names.count(name) > 1:
            raise SchemaError(f"column {name!r} occurs twice; drop one of them")
    for field in schema.fields:
        wanted, fits = known[field.name]
        if not fits(field.dataType):
            raise SchemaError(
                f"column {field.name!r} must be {wanted}, not {field.dataType.simpleString()}; "
                f"cast it{_CAST.get(field.dataType.typeName(), '') if field.name == due else ''}"
            )
    if "value" not in names:
        raise SchemaError("column 'value' (string or binary) is missing: it is the message's body")
    if due not in names and options.delay_ms is None:
        raise SchemaError(
            f"column {due!r} (timestamp) is missing: it says when a message is due. Name another "
            "one by the option delayColumn, or give all rows the same delay by the option delayMs"
        )
    if "topic" not in names and options.topic is None:
        raise SchemaError("give the option topic, or each row its topic in the column 'topic'")


def source_schema(asked: StructType) -> StructType:
    """The schema of a stream: a subset of the known columns, with their types."""
    ours = {field.name: field for field in SOURCE_SCHEMA.fields}
    for field in asked.fields:
        if field.name not in ours:
            raise SchemaError(
                f"column {field.name!r} is not known; a stream of messages has {', '.join(ours)}"
            )
        wanted = ours[field.name].dataType
        if field.dataType.simpleString() != wanted.simpleString():
            raise SchemaError(
                f"column {field.name!r} is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}; leave the schema out and cast afterwards"
            )
    return asked


def _case_hint(name: str, known: dict[str, Any]) -> str:
    same = [each for each in known if each.lower() == name.lower()]
    return f" (in lower case: {same[0]})" if same else ""


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, TEXT)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, (*TEXT, BinaryType))


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, (IntegerType, ShortType, ByteType))


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields: list[StructField] = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and _is_text(fields[0].dataType)
        and _is_bytes(fields[1].dataType)
    )


_KNOWN: Final[dict[str, tuple[str, Callable[[DataType], bool]]]] = {
    "value": ("string or binary", _is_bytes),
    "deliver_at": ("timestamp", _is_time),
    "id": ("string", _is_text),
    "key": ("string", _is_text),
    "topic": ("string", _is_text),
    "priority": ("int", _is_int),
    "headers": (HEADERS, _are_headers),
}
_CAST: Final = {
    "long": ", for example by timestamp_millis(column)",
    "timestamp_ntz": ", which reads it in the session's time zone",
    "string": ", for example by to_timestamp(column)",
}
