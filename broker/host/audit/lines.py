"""One line of the audit log, and which calls have one.

A line is a JSON object with the fields of `AuditLine`, which docs/FORMATS.md explains. Clients
choose some of its texts: `encode` bounds them, and leaves no character that breaks or disguises a
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import orjson

ADMINISTRATIVE: Final = frozenset({"admin", "operate"})
"""Rights whose calls are carried out only after their line is durable."""
CHANGING: Final = ADMINISTRATIVE | {"change"}
MODES: Final = ("changes", "all", "off")
TEXT_MAX: Final = 256
"""Longest text of a field. Longer ones, which only a client can send, are cut."""
FACTS_MAX: Final = 16

BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"
"""Outcome of a call that ended with an unexpected error."""
LEFT: Final = "client_left"
"""Outcome of a call whose client left before the answer: it was carried out or not."""
UNRECORDED: Final = "audit_failed"
"""Outcome of an administrative call that was refused because its line could not be written."""
AUDIT: Final = "audit"
"""The `call` of lines that the audit log writes about itself."""
STARTED: Final = "started"
LOST: Final = "lost"

Fact = str | int | bool | None


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is recorded."""

    mode: str = "changes"

    def records(self, right: str | None) -> bool:
        """Whether calls that need this right are recorded, whatever their outcome."""
        return self.mode == "all" or (self.mode == "changes" and right in CHANGING)


@dataclass(slots=True, kw_only=True)
class AuditLine:
    """One line. The log sets `time` and `node`."""

    time: str = ""
    node: int = 0
    principal: str | None = None
    address: str | None = None
    face: str = "local"
    call: str = ""
    right: str | None = None
    namespace: str | None = None
    topic: str | None = None
    group: str | None = None
    count: int | None = None
    outcome: str = DONE
    request_id: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of the line, with its newline."""
        members: dict[str, object] = {name: _bounded(getattr(self, name)) for name in _PLAIN}
        some = islice(self.facts.items(), FACTS_MAX)
        members["facts"] = {printable(name): _bounded(value) for name, value in some}
        return orjson.dumps(members) + b"\n"


_PLAIN: Final = tuple(each.name for each in fields(AuditLine) if each.name != "facts")


def printable(text: str) -> str:
    """`text` without characters that could break or disguise a line, and cut to `TEXT_MAX`."""
    if text.isprintable() and len(text) <= TEXT_MAX:
        return text
    cut = text[: TEXT_MAX + 1]
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut
    )
    return shown if len(shown) <= TEXT_MAX else shown[: TEXT_MAX - 1] + "…"


def _bounded(value: Fact) -> Fact:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return printable(str(value))
    return value


def time_text(now_ms: int) -> str:
    """The `time` of a line."""
    at = datetime.fromtimestamp(now_ms // 1_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03}Z"
