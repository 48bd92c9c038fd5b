"""Batch: rows of one topic and kind that are sent together, and the outcome of each.

A message is checked and becomes a row in the caller. Everything that can be checked without the
broker is checked there against the broker's limits, so that the caller gets the error, and no other
message of the batch fails. Rows are stored as columns from the start, so that encoding takes no
work per row. A batch is open while it accepts rows, then closed, and settled once every row has an
outcome. A row gets exactly one outcome: sent or failed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeAlias, Unpack, cast, get_args

from delaylog.client.codec import JSON, Codec
from delaylog.client.errors import IdInUse
from delaylog.client.keywords import (
    ContentKeywords,
    OneMessageKeywords,
    OneSendKeywords,
    QueuedSendKeywords,
    SendKeywords,
)
from delaylog.client.models import NewMessage, Sent, SentResult
from delaylog.client.wire.bulk import REJECTED, SendAnswer, pack_body, ref_to_id
from delaylog.client.wire.checks import INT64_MAX, check_keywords
from delaylog.client.wire.times import due_of, in_ms, span_ms
from delaylog.contract.message_fields import MERGE_MODES, pack_fields, put_columns
from delaylog.contract.times import UNIX_MS_MIN, UNIX_US_MIN

# ------------------------------------------------------------------------- one message as a row

_MERGES: Final = (None, *MERGE_MODES)
_MERGE_KINDS: Final = {mode: 2 * index for index, mode in enumerate(_MERGES)}
_RELATIVE: Final = 1
_DUES: Final = ("deliver_at_ms", "at", "delay")
"""Keywords of one meaning: the one that a message gives takes the place of the default."""
_CONTENT: Final = tuple(ContentKeywords.__annotations__)
_MEMBERS: Final = tuple(
    each.name for each in fields(NewMessage) if each.name not in ("body", *_CONTENT)
)
Kind: TypeAlias = int
"""What all rows of a batch share. Bit 0: times are relative to the broker's now. The bits above:
the index of the merge mode in `_MERGES`.
"""
Packed: TypeAlias = dict[str, Any]
"""Fields beyond body and time, as `message_fields.pack_fields` returns them."""
Row: TypeAlias = tuple[bytes, Kind, int, Packed | None]
"""One checked message: body, kind, milliseconds, and its other fields if it has any. A plain tuple,
since one is made for each send.
"""


def checked_row(body: bytes | str | None, fields: QueuedSendKeywords, codec: Codec) -> Row:
    """The message of a send with these keywords; errors are those of `make_row`."""
    # Bytes and one time, the usual forms, take a quarter of the time of the general call.
    if type(body) is bytes and len(fields) == 1:
        delay = fields.get("delay")
        if type(delay) is timedelta and delay.days >= 0:
            return body, _RELATIVE, span_ms("delay", delay), None
        due_ms = fields.get("deliver_at_ms")
        if type(due_ms) is int and UNIX_MS_MIN <= due_ms < UNIX_US_MIN:
            return body, 0, due_ms, None
    return make_row(body, codec=codec, **fields)


def make_row(
    body: bytes | str | None,
    deliver_at_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
    codec: Codec = JSON,
    **fields: Unpack[OneMessageKeywords],
) -> Row:
    """The message as a row. TypeError or ValueError says what is wrong with it."""
    if body is None:
        body = _content(fields, codec)
    elif type(body) is not bytes:
        body = as_bytes(body)
    kind, time_ms = due_kind(deliver_at_ms, at, delay)
    if not fields:
        return body, kind, time_ms, None
    if "json" in fields or "value" in fields:
        raise ValueError(f"give one of body, {' and '.join(_CONTENT)}, not two")
    if fields.get("id") == "":
        raise ValueError("an id is not empty; leave it out to have one made")
    check_keywords("send", fields, OneSendKeywords)
    packed = pack_fields(in_ms(fields, "ttl") if "ttl" in fields else fields)
    merge = packed.pop("merge", None)
    if merge is not None:
        kind += _MERGE_KINDS[merge]
    return body, kind, time_ms, packed or None


def row_of(message: NewMessage | bytes | str, defaults: SendKeywords, codec: Codec = JSON) -> Row:
    """One of many messages as a row; `defaults` gives the fields that it leaves out."""
    if not isinstance(message, NewMessage):
        return make_row(message, **defaults)
    members: dict[str, Any] = dict(defaults)
    if any(getattr(message, name) is not None for name in _DUES):
        for name in _DUES:
            members.pop(name, None)
    for name in _MEMBERS:
        value = getattr(message, name)
        if value is not None and value != ():
            members[name] = value
    for name in _CONTENT:
        value = getattr(message, name)
        if value is not ...:
            members[name] = value
    return make_row(message.body, codec=codec, **members)


def check_several(messages: object, call: str) -> None:
    """TypeError for a single str or bytes, whose elements would be sent as messages."""
    if isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{call} takes a list, not one {type(messages).__name__}")


def is_relative(kind: Kind) -> bool:
    """Whether the times of these rows are delays from when the broker accepts them."""
    return bool(kind & _RELATIVE)


def merge_of(kind: Kind) -> str | None:
    """The merge mode of these rows; None = the topic's."""
    return _MERGES[kind >> 1]


def due_kind(
    deliver_at_ms: int | None, at: datetime | None, delay: timedelta | None
) -> tuple[Kind, int]:
    """(kind, milliseconds) of the due time; without any it is now."""
    time_ms, relative = due_of(deliver_at_ms, at, delay) or (0, True)
    if time_ms > INT64_MAX:
        raise ValueError(f"{time_ms} ms exceed what a broker can store")
    return (_RELATIVE if relative else 0), time_ms


def _content(fields: OneMessageKeywords, codec: Codec) -> bytes:
    """The body of a message that has `json` or `value`, which are taken out of its fields."""
    if "json" in fields:
        return JSON.encode(fields.pop("json"))
    if "value" not in fields:
        raise TypeError("a message has a body, json= or value=")
    body = codec.encode(fields.pop("value"))
    if not isinstance(body, bytes):
        raise TypeError(f"{codec!r} encodes to bytes, not {type(body).__name__}")
    return body


def as_bytes(body: object) -> bytes:
    """A body as bytes; a buffer is copied, since its owner may write into it."""
    if isinstance(body, str):
        return encoded("body", body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    kind = type(body).__name__
    raise TypeError(f"a body is bytes or str, not {kind}: give other values as json= or value=")


def encoded(name: str, text: str) -> bytes:
    """Text as UTF-8; ValueError for one that has none, such as half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode: {error}") from None


# -------------------------------------------------------------------- rows that share a request

WHOLE_BATCH: Final = -1
RESULTS: Final[tuple[SentResult, ...]] = get_args(SentResult)
"""In the order of their codes in answers."""


class Batch:
    """Rows that share a request. `left` counts the rows without an outcome."""

    __slots__ = (
        "_answer",
        "_answers",
        "_sent",
        "answered",
        "bodies",
        "failed",
        "free",
        "kind",
        "left",
        "limit_s",
        "members",
        "opened_at_s",
        "rows",
        "seconds",
        "shard",
        "size_bytes",
        "times_ms",
        "topic",
        "tried",
        "unseen",
        "waiters",
    )

    def __init__(self, topic: str, kind: Kind, opened_at_s: float, *, free: bool = False) -> None:
        self.topic = topic
        self.kind = kind
        self.free = free
        """Whether any shard may take the batch."""
        self.opened_at_s = opened_at_s
        self.limit_s: float | None = None
        """The time limit of the calls that wait for it; None if none does."""
        self.bodies: list[bytes] = []
        self.times_ms: list[int] = []
        self.members: list[Packed | None] | None = None
        """One entry per row once any row has extra fields."""
        self.size_bytes = 0
        self.rows = 0
        """The number of rows of a closed batch."""
        self.left = 0
        self.answered = False
        """Whether one answer covered the whole batch."""
        self.failed: dict[int, BaseException] = {}
        self.unseen: set[int] = set()
        """Failed rows whose outcome was never read."""
        self.waiters: dict[Any, int] = {}
        """Waiters to wake once their row, or WHOLE_BATCH, has an outcome; in order."""
        self.shard = ""
        self.tried: set[str] = set()
        """Shards found unreachable since the batch last waited."""
        self.seconds = 0.0
        self._answer: SendAnswer | None = None
        self._sent: list[Sent] | None = None
        self._answers: dict[int, Sent] = {}

    def add(self, body: bytes, time_ms: int, members: Packed | None) -> int:
        """Add a row and return its number."""
        bodies = self.bodies
        row = len(bodies)
        bodies.append(body)
        self.times_ms.append(time_ms)
        if members is not None or self.members is not None:
            self._add_members(row, members)
        return row

    def close(self) -> None:
        """Close the batch for new rows."""
        self.rows = self.left = len(self.bodies)

    def encode(self, rows: Sequence[int] | None, producer: str, sequence: int) -> bytes:
        """Encode these rows, or all rows, as a bulk send body."""
        bodies, times_ms, members = self.bodies, self.times_ms, self.members
        if rows is not None:
            bodies = [bodies[row] for row in rows]
            times_ms = [times_ms[row] for row in rows]
            members = None if members is None else [members[row] for row in rows]
        n = len(bodies)
        fields: dict[str, Any] = {
            "n": n,
            "delay_ms" if is_relative(self.kind) else "deliver_at_ms": _numbers("q", times_ms),
            "body_size": _numbers("I", list(map(len, bodies))),
            "bodies": b"".join(bodies),
            "producer": producer,
            "sequence": sequence,
        }
        merge = merge_of(self.kind)
        if merge is not None:
            fields["merge"] = merge
        if members is not None:
            put_columns(fields, members)
        return pack_body(fields)

    def is_settled(self, row: int) -> bool:
        """Whether this row has an outcome."""
        return self.answered or row in self._answers or row in self.failed

    def sent(self, rows: Sequence[int] | None, answer: SendAnswer) -> None:
        """Record an answer for these rows, or for all. A row whose id is in use fails."""
        assert self.left >= answer.n, "a row has one outcome"
        self.left -= answer.n
        self.shard = answer.shard or self.shard
        refused = REJECTED in answer.result
        if rows is None and not refused:
            self._answer = answer
            self.answered = True
            return
        rows = range(answer.n) if rows is None else rows
        refs, due = answer.refs.tolist(), answer.deliver_at_ms.tolist()
        for index, row in enumerate(rows):
            assert not self.is_settled(row), "a row has one outcome"
            result = RESULTS[answer.result[index]]
            sent = Sent(self._id(row) or ref_to_id(refs[index]), due[index], result, self.shard)
            if answer.result[index] == REJECTED:
                self.failed[row] = IdInUse(sent)
                self.unseen.add(row)
            else:
                self._answers[row] = sent

    def fail(self, rows: Sequence[int], error: BaseException) -> None:
        """Record that these rows have failed."""
        for row in rows:
            assert not self.is_settled(row), "a row has one outcome"
            self.failed[row] = error
        self.unseen.update(rows)
        self.left -= len(rows)

    def drop_bodies(self) -> None:
        """Release the bodies: all rows have an outcome."""
        assert self.left == 0
        self.bodies = []
        self.times_ms = []

    def outcome(self, row: int) -> Sent | BaseException:
        """The outcome of a settled row. A failure counts as read."""
        if self.answered:
            return self.all_sent()[row]
        error = self.failed.get(row)
        if error is None:
            return self._answers[row]
        self.unseen.discard(row)
        return error

    def all_sent(self) -> list[Sent]:
        """The outcomes of an answered batch; created for all rows on first use."""
        made = self._sent
        if made is None:
            answer = self._answer
            assert answer is not None, "only for a batch with one answer"
            ids: Iterable[str] = map(_ID_OF_REF, answer.refs.tolist())
            if self.members is not None:
                pairs = zip(self.members, ids, strict=True)
                ids = [_own_id(members) or made for members, made in pairs]
            results = map(RESULTS.__getitem__, answer.result.tolist())
            rows = zip(ids, answer.deliver_at_ms.tolist(), results, repeat(self.shard))
            made = self._sent = list(map(_MAKE_SENT, rows))
            self._answer = None
        return made

    def _id(self, row: int) -> str:
        return "" if self.members is None else _own_id(self.members[row])

    def _add_members(self, row: int, members: Packed | None) -> None:
        if self.members is None:
            self.members = [None] * row
        self.members.append(members)


# Takes half the time of calling the class, once per message.
_MAKE_SENT = cast("Callable[[tuple[str, int, str, str]], Sent]", partial(tuple.__new__, Sent))
_ID_OF_REF: Final = "~%016x".__mod__
assert _ID_OF_REF(0xAB) == ref_to_id(0xAB), "the same, implemented in C"


def _numbers(code: str, values: list[int]) -> int | bytes:
    """Encode a column: one number if all rows have the same value."""
    first = values[0]
    if values.count(first) == len(values):
        return first
    return array(code, values).tobytes()


def _own_id(members: Packed | None) -> str:
    return "" if members is None else members.get("id", b"").decode()
