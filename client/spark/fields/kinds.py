"""The types of the table of fields, in Spark and in Arrow.

A type is written as in Spark SQL. A DataFrame's column fits if no value can be changed by the cast
to the wire: narrower integers fit, and a struct may lack members.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    VarcharType,
)

_TEXTS: Final = (StringType, VarcharType, CharType)
_INTS: Final = (ByteType, ShortType, IntegerType)
_SCALARS: Final[dict[str, tuple[Any, tuple[type[DataType], ...]]]] = {
    "string": (pa.string(), _TEXTS),
    "binary": (pa.binary(), (*_TEXTS, BinaryType)),
    "int": (pa.int32(), _INTS),
    "bigint": (pa.int64(), (*_INTS, LongType)),
    "double": (pa.float64(), (*_INTS, LongType, FloatType, DoubleType, DecimalType)),
}
"""The Arrow type, and the Spark types that fit."""


def members_of(kind: str) -> dict[str, str] | None:
    """The names and types of the members of a struct; None for another type."""
    found = re.fullmatch(r"struct<(.*)>", kind)
    if found is None:
        return None
    parts = (part.partition(" ") for part in found[1].split(", "))
    return {name: kind for name, _, kind in parts}


def element_of(kind: str) -> str | None:
    """The type of the elements of an array; None for another type."""
    found = re.fullmatch(r"array<(.*)>", kind)
    return None if found is None else found[1]


def arrow_type(kind: str, given: Any = None) -> Any:
    """The Arrow type on the wire. `given` is the column's type, whose members a struct keeps."""
    if (element := element_of(kind)) is not None:
        return pa.list_(arrow_type(element))
    if (members := members_of(kind)) is not None:
        names = list(members) if given is None else [part.name for part in given]
        return pa.struct([(name, arrow_type(members[name])) for name in names])
    return _SCALARS[kind][0]


def fits(kind: str, given: DataType) -> bool:
    """Whether a column of a Spark type can be sent as a field of this type."""
    if (element := element_of(kind)) is not None:
        if not isinstance(given, ArrayType):
            return False
        members = members_of(element)
        # A pair of a map has both its members, in their order; the struct of a field need not.
        whole = members is None or (
            isinstance(given.elementType, StructType) and given.elementType.names == list(members)
        )
        return whole and fits(element, given.elementType)
    if (members := members_of(kind)) is not None:
        return (
            isinstance(given, StructType)
            and 0 < len(given.names) == len(set(given.names))
            and all(
                part.name in members and fits(members[part.name], part.dataType) for part in given
            )
        )
    return isinstance(given, _SCALARS[kind][1])
