"""The table of a message's fields: every interface takes names, bounds and option words from it.

HTTP, msgpack, bulk and Arrow bodies, `DL.SEND`, the command line, the SDK and the OpenAPI document
read this table; an engine module gives a field its meaning. Body and due time are not in it, since
each interface has its own form of them.

A field's value has two forms. Programs and JSON bodies give a Python value, which the field's
member checks. `pack` converts it to the packed form: an integer, or bytes. The columns of bulk
bodies contain packed values; `check_packed` checks packed texts.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import msgpack

from delaylog.contract.members import (
    Base64,
    Choice,
    Int,
    Member,
    MemberError,
    Nested,
    Number,
    Shape,
    Text,
    TextList,
    TextMap,
    whole_of,
)
from delaylog.contract.own_backoff import encode_own_backoff, split_own_backoff
from delaylog.contract.times import DelayMs, TimeMs

ID_BYTES_MAX: Final = 255
ID_PATTERN: Final = r"^[^~\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
KEY_BYTES_MAX: Final = 255
TAGS_MAX: Final = 16
TAG_BYTES_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 16_384
TTL_MS_MAX: Final = 2**53
BACKOFF_FIRST_MS_MAX: Final = 86_400_000
BACKOFF_MS_MAX: Final = 30 * 86_400_000
MergeMode: TypeAlias = Literal["keep", "replace", "reject"]
MERGE_MODES: Final[tuple[MergeMode, ...]] = get_args(MergeMode)
ARRAY_CODES: Final = {"<u1": "B", "<u2": "H", "<u4": "I", "<i4": "i", "<i8": "q"}
"""The types of columns, and the codes that `array` of the standard library has for them."""
assert sys.byteorder == "little", "an array has the byte order of the machine"
assert all(array(code).itemsize == int(kind[2]) for kind, code in ARRAY_CODES.items())
DEFAULT_I64: Final = -(2**63)
DEFAULT_I32: Final = -(2**31)
DEFAULT_U16: Final = 2**16 - 1

BODY: Final = Text("body", "The body as text; in msgpack also bytes.")
BODY_BASE64: Final = Base64("body_base64", "The body when it is not text.")
DELIVER_AT_MS: Final = TimeMs(
    "deliver_at_ms",
    "Due at this Unix time in ms; a past one or 0 means now. Below 1000000000000 it is refused.",
)
DELAY_MS: Final = DelayMs("delay_ms", "Due this many ms from now; a negative number means now.")
ID: Final = Text(
    "id",
    "Your own id, unique among living messages of the topic; absent or empty: made by the broker.",
    ID_BYTES_MAX,
    f"^$|{ID_PATTERN}",
)
KEY: Final = Text("key", "Ordering key.", KEY_BYTES_MAX)
TAGS: Final = TextList(
    "tags", "Tags, without newlines.", 0, TAGS_MAX, pattern=r"^[^\n]+$", length_max=TAG_BYTES_MAX
)
HEADERS: Final = TextMap("headers", "Texts that are delivered with the message.")
PRIORITY: Final = Int("priority", "Higher first.", DEFAULT_I32 + 1, 2**31 - 1)
TTL_MS: Final = Int(
    "ttl_ms", "Time in ms from due until the message expires; -1: never.", -1, TTL_MS_MAX
)
MAX_RETRY: Final = Int("max_retry", "Deliveries beyond the first.", 0, DEFAULT_U16 - 1)
MERGE: Final = Choice(
    "merge",
    "If a living message has this id: keep it, replace it, or reject this one.",
    MERGE_MODES,
)
BACKOFF: Final = Nested(
    "backoff",
    "The wait before a retry; absent members are those of the topic's backoff.",
    Shape(
        "Backoff",
        Int("first_ms", "The wait before the first retry; 0: none.", 0, BACKOFF_FIRST_MS_MAX),
        Int("max_ms", "The longest wait before any retry.", 0, BACKOFF_MS_MAX),
        Number("factor", "Each wait is this many times the one before.", 1, 100),
        Number("jitter", "Each wait is shortened at random by up to this share.", 0, 1),
        doc="a backoff",
    ),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One row of the table."""

    member: Member[Any]
    option: bytes
    """The field's word in DL.SEND."""
    column: str | None = None
    """Type of its numbers, or of the sizes of its texts, in a bulk body; None: it has no column."""
    absent: int | bytes = b""
    """The value in its column for a message without the field: a reserved number, or no bytes."""
    pack: Callable[[Any, int | None], Any] | None = None
    """Converts a checked value to the packed form; None: they are the same."""
    check_packed: Callable[[bytes, int | None], None] | None = None
    """Checks the packed form of a text. Raises MemberError."""

    @property
    def name(self) -> str:
        """The field's name everywhere but in DL.SEND."""
        return self.member.name

    @property
    def is_text(self) -> bool:
        """Whether its column is a text column."""
        return self.column is not None and isinstance(self.absent, bytes)


_MADE: Final = re.compile(r"[0-7][0-9a-f]{15}")
"""The digits of an id that a broker makes."""


def check_id(raw: bytes, item: int | None = None) -> None:
    """Refuse an id that is too long, not UTF-8, has control characters or begins with `~`."""
    text = _text(ID, raw, item)
    if text.startswith("~"):
        raise ID.wrong("must not begin with '~': only ids that brokers make do", item)
    if not text.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
        raise ID.wrong("must not contain control characters", item)


def made_id(text: str) -> str | None:
    """The broker's id that a text is without its `~`; None if it can be none."""
    return f"~{text}" if _MADE.fullmatch(text) else None


def _text(member: Text, raw: bytes, item: int | None) -> str:
    if member.bytes_max is not None and len(raw) > member.bytes_max:
        raise member.wrong(f"must have at most {member.bytes_max} bytes, not {len(raw)}", item)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise member.wrong("must be UTF-8", item) from None


def _check_key(raw: bytes, item: int | None) -> None:
    _text(KEY, raw, item)


def _check_tags(raw: bytes, item: int | None) -> None:
    tags = raw.split(b"\n")
    if len(tags) > TAGS_MAX or any(not 1 <= len(tag) <= TAG_BYTES_MAX for tag in tags):
        raise TAGS.wrong(f"must be at most {TAGS_MAX} of 1 to {TAG_BYTES_MAX} bytes", item)
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise TAGS.wrong("must be UTF-8", item) from None


def _check_headers(raw: bytes, item: int | None) -> None:
    """Refuse bytes that are not a packed map of texts, with or without a backoff before it."""
    try:
        backoff, packed = split_own_backoff(raw)
        texts = msgpack.unpackb(packed) if packed else {}
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise HEADERS.wrong("must be a msgpack map of texts", item) from None
    HEADERS.check(texts, None, item)
    _check_headers_size(packed, item)
    if backoff:
        try:
            BACKOFF.check(backoff, None, item)
        except MemberError as error:
            # The error names the column that has the backoff, as any error in a column does.
            raise HEADERS.wrong(f"begin with an illegal backoff: {error}", item) from None


def _check_headers_size(packed: bytes, item: int | None) -> None:
    if len(packed) > HEADERS_BYTES_MAX:
        raise HEADERS.wrong(f"must take at most {HEADERS_BYTES_MAX} bytes, not {len(packed)}", item)


def _pack_id(raw: bytes, item: int | None) -> bytes:
    if raw:
        check_id(raw, item)
    return raw


def _pack_tags(texts: list[str], item: int | None) -> bytes:
    """Tags joined by newlines."""
    try:
        tags = [text.encode() for text in texts]
    except UnicodeEncodeError:
        raise TAGS.wrong("must be valid Unicode", item) from None
    if any(not 1 <= len(tag) <= TAG_BYTES_MAX or b"\n" in tag for tag in tags):
        raise TAGS.wrong(f"must have 1 to {TAG_BYTES_MAX} bytes each and no newlines", item)
    return b"\n".join(tags)


def _pack_headers(texts: dict[str, str], item: int | None) -> bytes:
    if not texts:
        return b""
    try:
        packed: bytes = msgpack.packb(texts)
    except UnicodeEncodeError:
        raise HEADERS.wrong("must be valid Unicode", item) from None
    _check_headers_size(packed, item)
    return packed


def _pack_backoff(said: dict[str, Any], _item: int | None) -> bytes:
    return encode_own_backoff(said) if said else b""


_SIZES: Final = "<u2"
FIELDS: Final = (
    Field(ID, b"ID", _SIZES, pack=_pack_id, check_packed=check_id),
    Field(KEY, b"KEY", _SIZES, check_packed=_check_key),
    Field(TAGS, b"TAGS", _SIZES, pack=_pack_tags, check_packed=_check_tags),
    Field(HEADERS, b"HEADERS", _SIZES, pack=_pack_headers, check_packed=_check_headers),
    Field(PRIORITY, b"PRIORITY", "<i4", DEFAULT_I32),
    Field(TTL_MS, b"TTL", "<i8", DEFAULT_I64),
    Field(MAX_RETRY, b"RETRIES", "<u2", DEFAULT_U16),
    Field(MERGE, b"MERGE"),
    # A backoff has no column: its packed form goes in front of the headers.
    Field(BACKOFF, b"BACKOFF", pack=_pack_backoff),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
BY_OPTION: Final = {field.option: field for field in FIELDS}
COLUMNS: Final = {field.name: field for field in FIELDS if field.column is not None}
_CODES: Final = [
    (name, f"{name}_size" if field.is_text else "", ARRAY_CODES[str(field.column)], field.absent)
    for name, field in COLUMNS.items()
]
"""Of each column: its name, that of its sizes or "", the type of its numbers, and `absent`."""
TEXT_COLUMNS: Final = {name: field for name, field in COLUMNS.items() if field.is_text}


def pack_fields(values: Mapping[str, Any], item: int | None = None) -> dict[str, Any]:
    """The packed forms of the given fields by name, including `merge`.

    A packed backoff is put before the packed headers, under `headers`. Raises MemberError,
    MemberTypeError, and TypeError for an unknown name.
    """
    packed: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        field = BY_NAME.get(name)
        if field is None:
            raise TypeError(f"a message has no field {name!r}; it has {', '.join(BY_NAME)}")
        made = field.member.check(value, None, item)
        if field.pack is not None:
            made = field.pack(made, item)
        if made != b"":
            packed[name] = made
    if "backoff" in packed:
        packed["headers"] = packed.pop("backoff") + packed.get("headers", b"")
    return packed


def put_columns(columns: dict[str, Any], rows: Sequence[Mapping[str, Any] | None]) -> None:
    """Add the columns of a bulk body in which any of these packed rows has a value."""
    names = set().union(*filter(None, rows))
    assert names <= COLUMNS.keys(), "packed rows have fields with a column only"
    for name, size_name, code, absent in _CODES:
        if name not in names:
            continue
        values: list[Any] = [row.get(name, absent) if row else absent for row in rows]
        if size_name:
            columns[size_name] = array(code, map(len, values)).tobytes()
            columns[name] = b"".join(values)
        else:
            columns[name] = array(code, values).tobytes()


def from_text(field: Field, text: str) -> Any:
    """The Python value of a field that is written as text; `pack_fields` checks it.

    A backoff is the wait in ms before the first retry, or a JSON object; headers are a JSON
    object; tags are separated by commas.
    """
    member = field.member
    if isinstance(member, Int):
        return _whole(text)
    if isinstance(member, Choice):
        return text.lower()
    if isinstance(member, TextList):
        return text.split(",")
    if isinstance(member, Text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise member.wrong("must be a JSON object") from None
    if value is None:
        # A field is absent when its option is left out; the text "null" is a mistake.
        raise member.wrong("must be a JSON object")
    return {"first_ms": value} if member is BACKOFF and whole_of(value) is not None else value


def _whole(text: str) -> int | str:
    """The number; or the text if it is no number, which the member then refuses."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else text
