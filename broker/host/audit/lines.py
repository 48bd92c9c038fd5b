"""One line of the audit log: its fields, its bytes, and its place in the chain.

`AuditLine` declares the fields once: bytes, checks and the table in docs/FORMATS.md follow from it.
A line is a JSON object whose last member, `chain`, is the SHA-256 in hex of the chain of the line
before (64 zeros before the first) and the bytes of this line without that member. So a changed,
removed, inserted or moved line breaks the chain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

FIRST_CHAIN: Final = "0" * 64
TEXT_MAX: Final = 256
"""Longest text of a field. Longer ones, which only a client can send, are cut."""
FACTS_MAX: Final = 16
LINE_BYTES_MAX: Final = 1 << 17
"""Longest line: a printable character takes at most 4 bytes, a quote or backslash takes 2."""

BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"
"""Outcome of a call that ended with an unexpected error."""
LEFT: Final = "client_left"
"""Outcome of a call whose client left before the answer: it was carried out or not."""
AUDIT: Final = "audit"
"""The `call` of lines that the audit log writes about itself. Their outcomes follow."""
FILE_BEGUN: Final = "file_begun"
STARTED: Final = "started"
REMOVED: Final = "removed"
LOST: Final = "lost"

Fact = str | int | bool | None

_MEMBER: Final = b',"chain":"'
_TAIL: Final = re.compile(re.escape(_MEMBER) + rb'([0-9a-f]{64})"\}')
_TAIL_SIZE: Final = len(_MEMBER) + 64 + 2


def _field(what: str, default: Any = None) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(slots=True, kw_only=True)
class AuditLine:
    """One line. The log sets `n`, `time` and `node`; texts are cut and made printable."""

    n: int = _field("number of the line, from 1 on; no number is used twice", 0)
    time: str = _field("wall clock of the node, UTC, in milliseconds", "")
    node: int = _field("index of the node in its cluster; 0 without one", 0)
    principal: str | None = _field("who called; null if nobody was authenticated")
    address: str | None = _field("where the call came from")
    face: str = _field("`http`, `camellia`, `redis` or `local`", "local")
    call: str = _field("name of the call, such as `putTopic`, `DL.SEND` or `FLUSHALL`", "")
    right: str | None = _field("the right that the call needs; null for a login")
    namespace: str | None = _field("namespace that the call names")
    topic: str | None = _field("topic that the call names")
    group: str | None = _field("group that the call names")
    count: int | None = _field("messages or ids concerned; of refusals, how many share the line")
    outcome: str = _field(
        "`begun`, `done`, or the code of the refusal, such as `forbidden`; `client_left`: the "
        "client closed the connection first, and the call was carried out or not; `cancelled`: it "
        "did so before the call began; `failed`: an unexpected error; `audit_failed`: the line "
        "`begun` was not durable in time, and the call was refused",
        DONE,
    )
    request_id: str | None = _field("the `X-Request-Id` of the answer")
    facts: Mapping[str, Fact] = _field(
        "of administrative and changing calls: their members but ids, and names in the path"
    )

    def __post_init__(self) -> None:
        self.principal = _bounded(self.principal)
        self.address = _bounded(self.address)
        self.call = printable(self.call)
        self.namespace = _bounded(self.namespace)
        self.topic = _bounded(self.topic)
        self.group = _bounded(self.group)
        self.outcome = printable(self.outcome)
        self.request_id = _bounded(self.request_id)
        if self.facts:
            some = list(self.facts.items())[:FACTS_MAX]
            self.facts = {printable(name): _fact(value) for name, value in some}
        else:
            self.facts = _NO_FACTS


_NO_FACTS: Final[Mapping[str, Fact]] = {}
_NAMES: Final = tuple(each.name for each in fields(AuditLine))
_TEXTS: Final = 2 * FACTS_MAX + len(_NAMES)
assert _TEXTS * (TEXT_MAX * 4 + 32) < LINE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of an audit log: its newest durable line. The log of messages keeps heads."""

    node: int
    log: str
    """The random id of the audit log. Folders are restored, swapped and made anew, so the node does
    not tell which audit log is meant."""
    n: int
    chain: str


def printable(text: str) -> str:
    """`text` without characters that could break or disguise a line, and cut to `TEXT_MAX`."""
    if text.isprintable() and len(text) <= TEXT_MAX:
        return text
    cut = text[: TEXT_MAX + 1]
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut
    )
    return shown if len(shown) <= TEXT_MAX else shown[: TEXT_MAX - 1] + "…"


def _bounded(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _fact(value: Fact) -> Fact:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    return printable(str(value))


@lru_cache(1)
def time_text(now_ms: int) -> str:
    """The `time` of a line. Many lines share a millisecond."""
    at = datetime.fromtimestamp(now_ms // 1_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03}Z"


def time_ms(text: str) -> int:
    """The inverse of `time_text`. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return round(at.timestamp() * 1_000)


def next_chain(previous: str, body: bytes) -> str:
    """The chain of a line from that of the line before and the line without its chain."""
    return hashlib.sha256(previous.encode() + body).hexdigest()


def encode_line(line: AuditLine, previous: str) -> tuple[bytes, str]:
    """The bytes of a line, with its newline, and its chain."""
    body = orjson.dumps(line)
    chain = next_chain(previous, body)
    return b'%b%b%b"}\n' % (body[:-1], _MEMBER, chain.encode()), chain


def split_line(raw: bytes) -> tuple[bytes, str]:
    """(line without its chain, chain) of a line without its newline. Raises ValueError."""
    found = _TAIL.fullmatch(raw, max(len(raw) - _TAIL_SIZE, 0))
    if found is None:
        raise ValueError("it does not end with a chain")
    return raw[: found.start()] + b"}", found[1].decode()


def decode_line(body: bytes) -> AuditLine:
    """The line of these bytes without its chain. Raises ValueError."""
    members = orjson.loads(body)
    try:
        line = AuditLine(**{name: members[name] for name in _NAMES})
        time_ms(line.time)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it lacks a field") from None
    if type(line.n) is not int or line.n < 1:
        raise ValueError("it has no number")
    return line
