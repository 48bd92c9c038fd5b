"""Converts the record batches of a task to the columns and types of the wire.

There is no work per row: strings become binary as a view of the same bytes, times are converted to
UTC, and rows that cannot be sent are found with masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delaylog.errors import RowError
from pyspark_delaylog.options import NAME, Options

TIME: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: Final[dict[str, Any]] = {
    "value": pa.binary(),
    "deliver_at": TIME,
    "id": pa.string(),
    "key": pa.string(),
    "priority": pa.int32(),
    "headers": HEADERS,
}
TEXT_BYTES_MAX: Final = 255
"""Limit of an id and of a key."""
TOPIC_PATTERN: Final = r"^[A-Za-z0-9._-]{1,200}$"
CONTROL: Final = "[\\x00-\\x1f\\x7f]"


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that cannot be sent, all for the same reason."""

    rows: Any
    reason: str


class Columns:
    """Converts the batches of one task. `base_ms` is the start of `delayMs`."""

    def __init__(self, options: Options, base_ms: int | None) -> None:
        self._topic = options.topic
        self._due = options.delay_column
        self._delay_ms = options.delay_ms
        self._base_ms = base_ms
        assert base_ms is not None or options.delay_ms is None

    def wire(self, batch: Any) -> Any:
        """A record batch with the columns of the wire, and `topic` unless an option sets it."""
        arrays: dict[str, Any] = {}
        for name in batch.schema.names:
            target = "deliver_at" if name == self._due else name
            if target == "topic":
                if self._topic is None:
                    arrays["topic"] = batch.column(name).cast(pa.string())
            else:
                arrays[target] = batch.column(name).cast(TYPES[target])
        if self._delay_ms is not None:
            assert self._base_ms is not None
            due = pa.scalar((self._base_ms + self._delay_ms) * 1_000, pa.int64()).cast(TIME)
            said = arrays.get("deliver_at")
            # A row's own time takes precedence.
            arrays["deliver_at"] = (
                pa.repeat(due, batch.num_rows) if said is None else said.fill_null(due)
            )
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def refuse_nulls(self, batch: Any) -> None:
        """RowError for the first row without a required value."""
        for name in ("value", "deliver_at", "topic"):
            if name in batch.schema.names and batch.column(name).null_count:
                shown = self._due if name == "deliver_at" else name
                row = pc.index(batch.column(name).is_null(), True).as_py()
                told = (
                    f", its id is {batch.column('id')[row].as_py()!r}"
                    if "id" in batch.schema.names
                    else ""
                )
                raise RowError(
                    f"column {shown!r} is null in a row{told}; filter such rows out, or send them "
                    "to a dead-letter topic with the option onError=deadLetter"
                )

    def sift(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """(rows to send, rejected rows by reason). The broker may refuse further rows."""
        rejected: list[Rejected] = []
        for name, reason, mask_of in _RULES:
            if name not in batch.schema.names or batch.num_rows == 0:
                continue
            mask = mask_of(batch.column(name)).fill_null(False)
            if pc.any(mask).as_py():
                rejected.append(Rejected(batch.filter(mask), reason))
                batch = batch.filter(pc.invert(mask))
        return batch, rejected


def by_topic(batch: Any, topic: str | None) -> list[tuple[str, Any]]:
    """Split the batch by its column `topic`; if an option sets the topic, keep it whole."""
    if topic is not None:
        return [(topic, batch)]
    topics = batch.column("topic").dictionary_encode()
    rest = batch.drop_columns(["topic"])
    names = topics.dictionary.to_pylist()
    for name in names:
        if not NAME.match(name):
            raise RowError(
                f"column 'topic': {name!r} is not a valid name; use 1 to 200 of A-Z a-z 0-9 . _ -, "
                "or set the option onError=deadLetter"
            )
    if len(names) == 1:
        return [(names[0], rest)]
    return [
        (name, rest.filter(pc.equal(topics.indices, number))) for number, name in enumerate(names)
    ]


def _too_long(column: Any) -> Any:
    return pc.greater(pc.binary_length(column), TEXT_BYTES_MAX)


_RULES: Final[tuple[tuple[str, str, Any], ...]] = (
    ("value", "value is null", pc.is_null),
    ("deliver_at", "the time is null", pc.is_null),
    ("topic", "topic is null", pc.is_null),
    (
        "topic",
        "topic is not a valid name",
        lambda column: pc.invert(pc.match_substring_regex(column, TOPIC_PATTERN)),
    ),
    ("id", f"id is longer than {TEXT_BYTES_MAX} bytes", _too_long),
    ("id", "id begins with ~", lambda column: pc.starts_with(column, "~")),
    (
        "id",
        "id has control characters",
        lambda column: pc.match_substring_regex(column, CONTROL),
    ),
    ("key", f"key is longer than {TEXT_BYTES_MAX} bytes", _too_long),
)
