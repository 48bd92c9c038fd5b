"""Encodes the bulk request bodies of the HTTP API: one msgpack map of columns.

A numeric column is either one int for all rows, or n little-endian values. A text column is a
column of sizes and one block of bytes. `bulk_answers` decodes the answers. The server has its own
codec; a test compares the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgpack

from delaylog.client.keywords import SettleTimes
from delaylog.client.wire.checks import check_list, check_sendable
from delaylog.client.wire.columns import IntArray, Numbers, column_of, one_for_all
from delaylog.client.wire.due import due_members
from delaylog.client.wire.durations import in_numbers
from delaylog.contract.message_fields import BY_NAME, COLUMNS, MergeMode, pack_fields

BULK_TYPE: Final = "application/vnd.delaylog.batch"
BULK_VERSION: Final = 1

# Results of a row of a bulk send, and of a bulk cancel or reschedule.
CREATED, KEPT, REPLACED, REJECTED = range(4)
DONE, TOO_LATE, UNKNOWN = range(3)

_NUMBERS: Final = {"deliver_at_ms": "<i8", "delay_ms": "<i8"} | {
    name: field.column for name, field in COLUMNS.items() if field.column and not field.is_text
}
"""The numeric columns of a bulk send, and their types."""
_TIMES: Final[Mapping[str, tuple[str, Callable[[Any], int]]]] = {
    "at": ("deliver_at_ms", lambda at: due_members(at=at)["deliver_at_ms"]),
    "delay": ("delay_ms", lambda delay: due_members(delay=delay)["delay_ms"]),
    "ttl": ("ttl_ms", lambda ttl: in_numbers({"ttl": ttl}, "ttl_ms")["ttl_ms"]),
}
"""Columns of times, and the numeric columns that they become."""
Texts: TypeAlias = Sequence[bytes] | Sequence[str] | tuple[Sequence[int] | IntArray, bytes]


def ref_to_id(ref: int) -> str:
    """The id that the broker generates for a message: `~` and the ref in 16 hex digits."""
    return f"~{ref & 0xFFFF_FFFF_FFFF_FFFF:016x}"


class SendColumns(TypedDict, total=False):
    """The columns of a bulk send besides its bodies, and the values for all rows.

    `at`, `delay` and `ttl` are other forms of `deliver_at_ms`, `delay_ms` and `ttl_ms`.
    """

    deliver_at_ms: Numbers | None
    delay_ms: Numbers | None
    at: datetime | Sequence[datetime] | None
    delay: timedelta | Sequence[timedelta] | None
    ids: Texts | None
    keys: Texts | None
    tags: Sequence[Sequence[str]] | None
    headers: Sequence[Mapping[str, str]] | None
    backoff: Sequence[Mapping[str, float] | None] | None
    priority: Numbers | None
    ttl_ms: Numbers | None
    ttl: timedelta | Sequence[timedelta] | None
    max_retry: Numbers | None
    merge: MergeMode | None
    producer: str | None
    sequence: int | None


_FIELDS_OF: Final = {"ids": "id", "keys": "key"}
assert BY_NAME.keys() <= {_FIELDS_OF.get(name, name) for name in SendColumns.__annotations__}


def encode_send(bodies: Texts, **columns: Unpack[SendColumns]) -> bytes:
    """Encode a bulk send. Text columns are lists, or (sizes, block) tuples if already columnar.

    TypeError for an unknown column.
    """
    given: Mapping[str, Any] = columns
    for name in given.keys() - SendColumns.__annotations__.keys():
        raise TypeError(f"a bulk body has no column {name!r}")
    for name, (field, in_ms) in _TIMES.items():
        if given.get(name) is not None:
            given = _with_numbers(given, name, field, in_ms)
    if (given.get("deliver_at_ms") is None) == (given.get("delay_ms") is None):
        raise ValueError("give either deliver_at_ms or delay_ms, or at or delay")
    producer, sequence = columns.get("producer"), columns.get("sequence")
    if (producer is None) != (sequence is None):
        raise ValueError("producer and sequence come together")
    tags, headers, backoff = columns.get("tags"), columns.get("headers"), columns.get("backoff")
    check_list("bodies", bodies)
    for name in ("ids", "keys", "tags"):
        check_list(name, given.get(name))
    n = rows_of("bodies", bodies)
    fields: dict[str, Any] = {"n": n}
    for name, kind in _NUMBERS.items():
        _put_numbers(fields, name, given.get(name), kind, n)
    _put_texts(fields, "body", "bodies", bodies, "<u4", n)
    _put_texts(fields, "id", "id", columns.get("ids"), "<u2", n)
    _put_texts(fields, "key", "key", columns.get("keys"), "<u2", n)
    if tags is not None:
        for each in tags:
            check_list("the tags of a row", each)
        _put_texts(fields, "tags", "tags", ["\n".join(each) for each in tags], "<u2", n)
    if headers is not None or backoff is not None:
        for name, column in (("headers", headers), ("backoff", backoff)):
            if column is not None and len(column) != n:
                raise ValueError(f"{name} holds {len(column)} values for {n} rows")
        nothing: list[None] = [None] * n
        rows = zip(headers or nothing, backoff or nothing, strict=True)
        packed = [pack_fields({"headers": each, "backoff": own}) for each, own in rows]
        texts = [each.get("headers", b"") for each in packed]
        _put_texts(fields, "headers", "headers", texts, "<u2", n)
    return pack_body(fields, merge=columns.get("merge"), producer=producer, sequence=sequence)


def or_now(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a bulk send; if they have no due time, the messages are due now."""
    dues = ("deliver_at_ms", "delay_ms", "at", "delay")
    if any(columns.get(name) is not None for name in dues):
        return dict(columns)
    return {**columns, "delay_ms": 0}


def _with_numbers(
    columns: Mapping[str, Any], name: str, field: str, in_ms: Callable[[Any], int]
) -> dict[str, Any]:
    """The columns, in which the times of one are numbers of milliseconds."""
    found = dict(columns)
    times = found.pop(name)
    if found.get(field) is not None:
        raise ValueError(f"give {name} or {field}, not both")
    is_one = isinstance(times, datetime | timedelta)
    found[field] = in_ms(times) if is_one else [in_ms(each) for each in times]
    return found


class SettleMembers(SettleTimes, total=False):
    """The keywords of settling besides the lease and its refs."""

    except_refs: Numbers | None


def encode_settle(
    lease: int,
    refs: Numbers | None = None,
    *,
    except_refs: Numbers | None = None,
    delay_ms: int | None = None,
    lease_ms: int | None = None,
    reason: str | None = None,
) -> bytes:
    """Encode a settling or begin of the given refs, or of a whole lease except some refs.

    `n` is the number of refs in the body: 0 for a whole lease.
    """
    if refs is not None and except_refs is not None:
        raise ValueError("give refs, or except_refs, not both")
    named = refs if refs is not None else except_refs
    chosen = _refs(named)
    fields: dict[str, Any] = {"n": len(chosen), "lease": lease}
    if refs is not None:
        fields["refs"] = chosen.tobytes()
    else:
        fields["all"] = True
        if len(chosen):
            fields["except"] = chosen.tobytes()
    return pack_body(fields, delay_ms=delay_ms, lease_ms=lease_ms, reason=reason)


class ChangeColumns(TypedDict, total=False):
    """The keywords of a bulk change: refs or ids, and the new times."""

    refs: Numbers | None
    ids: Texts | None
    deliver_at_ms: Numbers | None
    delay_ms: Numbers | None


def encode_change(
    *,
    refs: Numbers | None = None,
    ids: Texts | None = None,
    deliver_at_ms: Numbers | None = None,
    delay_ms: Numbers | None = None,
) -> bytes:
    """Encode a bulk cancel; with a time, a bulk reschedule or replay."""
    if (refs is None) == (ids is None):
        raise ValueError("give either refs or ids")
    if deliver_at_ms is not None and delay_ms is not None:
        raise ValueError("give deliver_at_ms or delay_ms, not both")
    fields: dict[str, Any] = {}
    if ids is not None:
        fields["n"] = rows_of("ids", ids)
        _put_texts(fields, "id", "id", ids, "<u2", fields["n"])
    else:
        column = _refs(refs)
        fields["n"] = len(column)
        fields["refs"] = column.tobytes()
    _put_numbers(fields, "deliver_at_ms", deliver_at_ms, "<i8", fields["n"])
    _put_numbers(fields, "delay_ms", delay_ms, "<i8", fields["n"])
    return pack_body(fields)


def encode_receive(**members: Any) -> bytes:
    """Encode a receive: the members of its JSON form that are not None."""
    return pack_body({"n": 0}, **members)


def pack_body(fields: Mapping[str, Any], **optional: object) -> bytes:
    """Pack a bulk body of these members; optional ones that are None are left out."""
    given = {name: value for name, value in optional.items() if value is not None}
    packed: bytes = msgpack.packb({"v": BULK_VERSION, **fields, **given})
    return packed


def rows_of(what: str, texts: Texts) -> int:
    """The number of rows of a text column. TypeError if it is none, such as a tuple of str."""
    if isinstance(texts, tuple):
        if len(texts) != 2 or not isinstance(texts[1], (bytes, bytearray, memoryview)):
            raise TypeError(f"{what} are a list, or a tuple of their sizes and one block of bytes")
        return len(texts[0])
    if not isinstance(texts, Sized):
        raise TypeError(f"{what} are a list, not {type(texts).__name__}")
    return len(texts)


def _refs(refs: Numbers | None) -> array[int]:
    if refs is None:
        return array("q")
    return column_of("refs", [refs] if isinstance(refs, int) else refs, "<i8", None)


def _put_numbers(
    fields: dict[str, Any], name: str, value: Numbers | None, kind: str, n: int
) -> None:
    if value is None:
        return
    if isinstance(value, int):
        check_sendable(**{name: value})
        fields[name] = value
        return
    fields[name] = column_of(name, value, kind, n).tobytes()


def _put_texts(
    fields: dict[str, Any], name: str, block_name: str, value: Texts | None, kind: str, n: int
) -> None:
    """Add a column of texts; equal sizes are sent once."""
    if value is None:
        return
    if isinstance(value, tuple):
        sizes, block = value
    else:
        raw = [text.encode() if isinstance(text, str) else text for text in value]
        sizes, block = list(map(len, raw)), b"".join(raw)
    size_name = f"{name}_size"
    column = column_of(size_name, sizes, kind, n)
    if sum(column) != len(block):
        raise ValueError(f"the sizes of {name} do not add up to its {len(block)} bytes")
    size = one_for_all(column)
    fields[size_name] = column.tobytes() if size is None else size
    fields[block_name] = block
