"""Which DataFrames are taken: everything else is refused with the name of the column."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_delaylog.errors import SchemaError
from pyspark_delaylog.schema import SOURCE_SCHEMA, check_sink_schema, source_schema
from tests.client.spark.conftest import OptionsOf

TEXT, TIME = StringType(), TimestampType()
PAIR = StructType([StructField("key", TEXT), StructField("value", BinaryType())])
ALL = {
    "value": BinaryType(),
    "deliver_at": TIME,
    "topic": TEXT,
    "id": TEXT,
    "key": TEXT,
    "tags": ArrayType(TEXT),
    "headers": ArrayType(PAIR),
    "priority": IntegerType(),
    "ttl_ms": LongType(),
    "max_retry": IntegerType(),
    "merge": TEXT,
    "backoff": StructType(
        [StructField("first_ms", LongType()), StructField("factor", DoubleType())]
    ),
}


def of(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def test_all_columns_and_the_fewest_are_taken(options_of: OptionsOf) -> None:
    check_sink_schema(of(**ALL), options_of())
    check_sink_schema(of(value=TEXT, deliver_at=TIME), options_of())
    check_sink_schema(of(value=TEXT), options_of(delayMs=5))
    check_sink_schema(of(value=TEXT, due=TIME), options_of(delayColumn="due"))
    check_sink_schema(of(value=TEXT, deliver_at=TIME, topic=TEXT), options_of(topic=""))


@pytest.mark.parametrize(
    ("kinds", "given", "message"),
    [
        ({"colour": TEXT}, {}, "column 'colour' is not known; rename or drop it. The columns are"),
        ({"ID": TEXT}, {}, "(in lower case: id)"),
        ({"value": LongType()}, {}, "column 'value' must be string or binary, not bigint; cast"),
        ({"value": PAIR}, {}, "convert it, for example by to_json(column)"),
        ({"value": DecimalType(9, 2)}, {}, "must be string or binary, not decimal(9,2); cast it"),
        ({"value": NullType()}, {}, "must be string or binary, not void; cast it"),
        ({"deliver_at": LongType()}, {}, "by timestamp_millis(column)"),
        ({"deliver_at": DateType()}, {}, "must be timestamp, not date; cast it"),
        ({"deliver_at": TimestampNTZType()}, {}, "must be timestamp, not timestamp_ntz"),
        ({"deliver_at": TEXT}, {}, "by to_timestamp(column)"),
        ({"priority": LongType()}, {}, "column 'priority' must be int"),
        ({"headers": MapType(TEXT, TEXT)}, {}, "column 'headers' must be array<struct<key string"),
        ({"headers": MapType(TEXT, TEXT)}, {}, "convert it by map_entries(column)"),
        ({"tags": TEXT}, {}, "column 'tags' must be array<string>, not string; convert it, for"),
        ({"tags": ArrayType(LongType())}, {}, "must be array<string>, not array<bigint>; cast it"),
        ({"merge": LongType()}, {}, "column 'merge' must be string"),
        ({"backoff": LongType()}, {}, "column 'backoff' must be struct<first_ms bigint, max_ms"),
        ({"backoff": StructType([StructField("x", LongType())])}, {}, "column 'backoff' must be"),
        ({"backoff": StructType([])}, {}, "column 'backoff' must be"),
        ({"headers": ArrayType(TEXT)}, {}, "column 'headers' must be array"),
        ({"deliver_at": TIME}, {"delayColumn": "due"}, "column 'deliver_at' is not known"),
        ({}, {"topic": ""}, "give the option topic, or each row its topic"),
        ({}, {"delayColumn": "due"}, "column 'due' (timestamp) is missing"),
    ],
)
def test_others_are_refused_by_name(
    options_of: OptionsOf, kinds: dict[str, DataType], given: dict[str, str], message: str
) -> None:
    base = {"value": TEXT} if "delayColumn" in given else {"value": TEXT, "deliver_at": TIME}
    with pytest.raises(SchemaError, match=re.escape(message)):
        check_sink_schema(of(**{**base, **kinds}), options_of(**given))


def test_a_body_is_needed_and_no_column_twice(options_of: OptionsOf) -> None:
    with pytest.raises(SchemaError, match=r"column 'value'.*is missing"):
        check_sink_schema(of(deliver_at=TIME), options_of())
    twice = StructType([StructField("value", TEXT)] * 2)
    with pytest.raises(SchemaError, match="column 'value' occurs twice"):
        check_sink_schema(twice, options_of())


def test_the_known_columns_are_listed(options_of: OptionsOf) -> None:
    with pytest.raises(SchemaError) as caught:
        check_sink_schema(of(value=TEXT, x=TEXT), options_of())
    assert ", ".join(ALL) in str(caught.value)


def test_a_stream_is_read_with_some_of_its_columns() -> None:
    some = StructType([SOURCE_SCHEMA["id"], SOURCE_SCHEMA["value"]])
    assert source_schema(some) is some
    with pytest.raises(SchemaError, match="column 'body' is not known"):
        source_schema(of(body=TEXT))
    with pytest.raises(SchemaError, match="column 'value' is binary, not string"):
        source_schema(of(value=TEXT))
