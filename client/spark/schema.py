"""Checks the columns of a DataFrame on the driver, before any task starts.

A column is sent or refused, never ignored silently. Only the schema is checked here; `columns`
converts the rows of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType, TimestampType

from pyspark_delaylog.columns import HEADERS, TIME, fits
from pyspark_delaylog.errors import SchemaError
from pyspark_delaylog.field_table import FIELD_TYPES
from pyspark_delaylog.options import Options

SOURCE_SCHEMA: Final = from_arrow_schema(
    pa.schema(
        [
            ("value", pa.binary()),
            ("deliver_at", TIME),
            ("id", pa.string()),
            ("key", pa.string()),
            ("topic", pa.string()),
            ("priority", pa.int32()),
            ("attempts", pa.int32()),
            ("headers", HEADERS),
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
                + _remedy("deliver_at" if field.name == due else field.name, field.dataType)
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


def _remedy(field: str, given: DataType) -> str:
    """How to convert a column of the DataFrame to the type of a field."""
    return _ADVICE.get(field, {}).get(given.typeName(), "cast it")


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


_KNOWN: Final[dict[str, tuple[str, Callable[[DataType], bool]]]] = {
    "value": ("string or binary", partial(fits, "binary")),
    "deliver_at": ("timestamp", _is_time),
    "topic": ("string", partial(fits, "string")),
    **{name: (kind, partial(fits, kind)) for name, kind in FIELD_TYPES.items()},
}
_JSON: Final = "convert it, for example by to_json(column)"
_EPOCH: Final = "convert it by timestamp_millis(column) or timestamp_seconds(column)"
_ADVICE: Final[dict[str, dict[str, str]]] = {
    "value": dict.fromkeys(("struct", "map", "array", "variant"), _JSON),
    "deliver_at": {
        "long": _EPOCH,
        "integer": _EPOCH,
        "timestamp_ntz": "cast it, which reads it in the session's time zone",
        "string": "convert it by to_timestamp(column)",
    },
    "headers": {"map": "convert it by map_entries(column)"},
    "tags": {"string": "convert it, for example by split(column, ',')"},
}
"""What to do with a column of a Spark type where a cast is impossible or needs a word."""
