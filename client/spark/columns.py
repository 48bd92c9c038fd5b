"""Converts the record batches of a task to the columns and types of the wire.

There is no work per row: strings become binary as a view of the same bytes, times are converted to
UTC, and rows that cannot be sent are found with masks. Types are those of the table of fields,
written as in Spark SQL. A DataFrame's column fits if no value can be changed by the cast to the
wire: narrower integers fit, and a struct may lack members.

The broker stores headers as a map of texts. Spark's type allows repeated names, null values and
values that are not text. A row with such headers is refused, since the alternative is to lose data
silently. That check costs no work per row unless some row has several headers or one is wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from pyspark_delaylog.errors import RowError
from pyspark_delaylog.field_table import FIELD_TYPES, TEXT_BYTES_MAX, UNIX_MS_MIN, WORDS
from pyspark_delaylog.options import NAME_FAULT, Options

# ---------------------------------------------------------- headers that the broker cannot keep


def wrong_headers(column: Any) -> Any:
    """A mask of the rows whose headers cannot be sent; `headers_fault` says why."""
    rows = pc.list_parent_indices(column).to_numpy()
    names, values = pc.list_flatten(column).flatten()
    wrong = pc.or_(names.is_null(), values.is_null()).to_numpy(zero_copy_only=False).copy()
    wrong |= _not_text(values)
    if len(rows) and (rows[1:] == rows[:-1]).any():
        wrong |= _repeated(rows, names)
    mask = np.zeros(len(column), np.bool_)
    mask[rows[wrong]] = True
    return pa.array(mask)


def headers_fault(pairs: list[dict[str, Any] | None]) -> str:
    """Why the headers of one row cannot be sent."""
    seen = set()
    for pair in pairs:
        name, value = (None, None) if pair is None else (pair["key"], pair["value"])
        if name is None:
            return "the name of a header is null"
        if value is None:
            return f"the value of header {name!r} is null; leave the header out or make it empty"
        try:
            value.decode()
        except UnicodeDecodeError:
            return f"the value of header {name!r} is not UTF-8; encode it, for example as base64"
        if name in seen:
            return f"header {name!r} occurs twice; the broker keeps one value of a name"
        seen.add(name)
    raise AssertionError("these headers can be sent")


def _not_text(values: Any) -> Any:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([not _is_text(value) for value in values.to_pylist()], np.bool_)
    return np.zeros(len(values), np.bool_)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _repeated(rows: Any, names: Any) -> Any:
    """A mask of the headers whose name an earlier one of the same row has."""
    codes = names.dictionary_encode()
    numbers = codes.indices.fill_null(len(codes.dictionary)).to_numpy(zero_copy_only=False)
    places = rows.astype(np.int64) * (len(codes.dictionary) + 1) + numbers
    repeated = np.ones(len(places), np.bool_)
    repeated[np.unique(places, return_index=True)[1]] = False
    return repeated


# ------------------------------------------------------------------ types in Spark and in Arrow

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


# ------------------------------------------------------------------------------- record batches

TIME: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = arrow_type(FIELD_TYPES["headers"])
TOPIC_PATTERN: Final = r"^[A-Za-z0-9._-]{1,200}$"
DOTS_PATTERN: Final = r"^\.\.?$"
"""Names that clients of HTTP remove from paths. Arrow's expressions have no lookahead."""
CONTROL: Final = "[\\x00-\\x1f\\x7f]"
SHOWN_BYTES_MAX: Final = 40
"""How much of a body an error shows."""
PAST_MS: Final = 60_000
"""How long before the load a row must have been due to count as past: Spark computes
`current_timestamp()`, which means now, when it plans the query, before the load begins."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that cannot be sent, all for the same reason."""

    rows: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must not be. Rules that the broker has as well are for dead letters only."""

    column: str
    wrong: Callable[[Any], Any]
    """A mask of the wrong values of a column."""
    reason: str | Callable[[Any], str]
    """Why a value is wrong, or a function of the value that says it."""
    ours: bool = False
    """Whether the broker does not refuse such rows by number."""

    def reason_of(self, value: Any) -> str:
        """The reason for one value."""
        return self.reason if isinstance(self.reason, str) else self.reason(value.as_py())


class Columns:
    """Converts the batches of one task. `base_ms` is the start of `delayMs`."""

    def __init__(self, options: Options, base_ms: int | None) -> None:
        self._topic = options.topic
        self._due = options.delay_column
        self._delay_ms = options.delay_ms
        self._base_ms = base_ms
        assert base_ms is not None or options.delay_ms is None
        now_ms = time.time_ns() // 1_000_000 if base_ms is None else base_ms
        self._past = pa.scalar((now_ms - PAST_MS) * 1_000, pa.int64())

    def wire(self, batch: Any) -> Any:
        """A record batch with the columns of the wire, and `topic` unless an option sets it."""
        arrays: dict[str, Any] = {}
        for name in batch.schema.names:
            target = "deliver_at" if name == self._due else name
            if target == "topic" and self._topic is not None:
                continue
            column = batch.column(name)
            arrays[target] = column.cast(wire_type(target, column.type))
        if self._delay_ms is not None:
            assert self._base_ms is not None
            due = pa.scalar((self._base_ms + self._delay_ms) * 1_000, pa.int64()).cast(TIME)
            said = arrays.get("deliver_at")
            # A row's own time takes precedence.
            arrays["deliver_at"] = (
                pa.repeat(due, batch.num_rows) if said is None else said.fill_null(due)
            )
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def past(self, batch: Any) -> int:
        """The number of rows of the wire that were due `PAST_MS` before the load began."""
        due = batch.column("deliver_at").cast(pa.int64())
        return int(pc.sum(pc.less(due, self._past)).as_py() or 0)

    def refuse(self, batch: Any) -> None:
        """RowError for a row that the broker would take wrongly, or refuse without its number."""
        for rule, mask in _broken(batch, ours_only=True):
            row = batch.slice(pc.index(mask, True).as_py(), 1)
            reason = rule.reason_of(row.column(rule.column)[0])
            raise self.row_error(row, rule.column, reason)

    def sift(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """(rows to send, rejected rows by reason). The broker may refuse further rows."""
        rejected: list[Rejected] = []
        good = np.ones(batch.num_rows, np.bool_)
        for rule, mask in _broken(batch, ours_only=False):
            wrong = mask.to_numpy(zero_copy_only=False) & good
            good &= ~wrong
            rows: dict[str, list[int]] = {}
            for row in np.flatnonzero(wrong).tolist():
                rows.setdefault(rule.reason_of(batch.column(rule.column)[row]), []).append(row)
            rejected += [Rejected(batch.take(pa.array(at)), reason) for reason, at in rows.items()]
        return (batch.filter(pa.array(good)) if rejected else batch), rejected

    def row_error(self, row: Any, field: str | None, reason: str, topic: str = "") -> RowError:
        """The error for a row that cannot be sent, with its column if one is at fault."""
        at = {"body": "value", "deliver_at": self._due, "deliver_at_ms": self._due}
        column = "" if field is None else f"column {at.get(field, field)!r} of "
        where = f" for topic {topic!r}" if topic else ""
        return RowError(
            f"{column}the row {_name_of(row)}{where}: {reason}; correct such rows, or set "
            "the option onError=deadLetter, which sends them to a topic of their own"
        )


def wire_type(name: str, given: Any) -> Any:
    """The Arrow type of a column on the wire; `given` is its type in the DataFrame."""
    fixed = {"value": pa.binary(), "deliver_at": TIME, "topic": pa.string()}
    return fixed.get(name) or arrow_type(FIELD_TYPES[name], given)


def by_merge(batch: Any) -> list[tuple[str | None, Any]]:
    """Split the batch by its column `merge`, because a request has one merge mode for all rows."""
    if "merge" not in batch.schema.names:
        return [(None, batch)]
    modes = batch.column("merge")
    parts = [
        (mode, batch.filter(pc.is_null(modes) if mode is None else pc.equal(modes, mode)))
        for mode in pc.unique(modes).to_pylist()
    ]
    return [(m, rows.drop_columns(["merge"]) if m is None else rows) for m, rows in parts]


def _name_of(row: Any) -> str:
    """What identifies a row to a person: its id, or else its key and the beginning of its body."""
    said = row.slice(0, 1).select([n for n in ("id", "key", "value") if n in row.schema.names])
    values = said.to_pylist()[0]
    if values.get("id"):
        return f"with id {values['id']!r}"
    key = f"with key {values['key']!r} and " if values.get("key") else "with "
    body = values.get("value")
    if body is None:
        return f"{key}no body"
    more = "..." if len(body) > SHOWN_BYTES_MAX else ""
    return f"{key}body {body[:SHOWN_BYTES_MAX].decode(errors='replace')!r}{more}"


def _broken(batch: Any, *, ours_only: bool) -> Iterator[tuple[Rule, Any]]:
    """The rules that some rows break, with masks of these rows."""
    for rule in _RULES:
        if rule.column in batch.schema.names and batch.num_rows and (rule.ours or not ours_only):
            mask = rule.wrong(batch.column(rule.column)).fill_null(False)
            if pc.any(mask).as_py():
                yield rule, mask


def _longer_than(most: int) -> Callable[[Any], Any]:
    return lambda column: pc.greater(pc.binary_length(column), most)


def _none_of(words: tuple[str, ...]) -> Callable[[Any], Any]:
    options = pc.SetLookupOptions(pa.array([*words, None], pa.string()))
    return lambda column: pc.invert(pc.is_in(column, options=options))


def _early(due: Any) -> Any:
    """A mask of microseconds that are no due time; 0 is now."""
    return pc.and_(pc.less(due, UNIX_MS_MIN * 1_000), pc.not_equal(due, 0))


def _matches(pattern: str) -> Callable[[Any], Any]:
    return lambda column: pc.match_substring_regex(column, pattern)


_RULES: Final[tuple[Rule, ...]] = (
    Rule("value", pc.is_null, "the body is null", ours=True),
    Rule(
        "deliver_at",
        pc.is_null,
        "the time is null: the row has none, or Spark could not read its text",
        ours=True,
    ),
    Rule(
        "deliver_at",
        lambda column: _early(column.cast(pa.int64())),
        "the time is before 2001-09-09: it was made from another unit than its own",
    ),
    Rule("topic", pc.is_null, "the topic is null", ours=True),
    Rule("headers", wrong_headers, headers_fault, ours=True),
    Rule(
        "topic",
        lambda column: pc.or_(
            pc.invert(pc.match_substring_regex(column, TOPIC_PATTERN)),
            pc.match_substring_regex(column, DOTS_PATTERN),
        ),
        lambda name: f"{name!r} {NAME_FAULT}",
        # A topic is a part of the address, not of the body.
        ours=True,
    ),
    Rule("id", lambda column: pc.starts_with(column, "~"), "an id must not begin with ~"),
    Rule("id", _matches(CONTROL), "the id has control characters"),
    *(
        Rule(name, _longer_than(most), f"{name} is longer than {most} bytes")
        for name, most in TEXT_BYTES_MAX.items()
    ),
    *(
        Rule(name, _none_of(words), f"{name} is none of {', '.join(words)}", ours=True)
        for name, words in WORDS.items()
    ),
)
