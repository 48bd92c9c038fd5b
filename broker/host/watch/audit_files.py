"""The lines of the audit log, which calls have one, and the files of lines.

A line is a JSON object with the fields of `AuditLine`, which docs/FORMATS.md explains. Clients
choose some of its texts: `encode` bounds them, and leaves no character that breaks or disguises a
line.

    DATA_DIR/audit/audit-00000000000000000001.jsonl    the oldest has the lowest number

Lines are durable when `append` returns. What a failed append has written is cut before the next
one, because the kernel may have dropped pages of a failed sync. `audit_log` has the thread that
calls this. Configuration and `delaylog verify` load this module, so it imports no event loop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import orjson

from delaylog.storage.errors import StorageError
from delaylog.storage.files.file_system import FileSystem, parent_of, replace_file

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


# ---------------------------------------------------------------------------------------- files

FOLDER: Final = "audit"
FILE_BYTES: Final = 64 << 20
"""A new file begins when the newest has this size: some 160,000 lines."""
FILES_MAX: Final = 100
"""Most files that are kept, 6.4 GB: who needs more ships them to another machine."""
_END_BYTES: Final = 16 << 20
"""Size of the end of a file in which a start looks for what a power cut has left."""
_NAME: Final = re.compile(r"audit-([0-9]{20})\.jsonl")


class AuditFiles:
    """Appends lines. `append` may raise StorageError or OSError, and can be called again."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        file_bytes: int = FILE_BYTES,
        files_max: int = FILES_MAX,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._file_bytes = file_bytes
        self._files_max = files_max
        self._newest = -1
        """Number of the newest file; 0 = there is none; -1 = the folder was not read yet."""
        self._size = 0
        """Size of its durable lines, or `file_bytes`: the next file begins with the next line."""

    def append(self, lines: bytes) -> None:
        """Append whole lines durably."""
        if self._newest < 0:
            self._find_newest()
        if self._size >= self._file_bytes:
            self._begin(self._newest + 1, lines)
            return
        try:
            file = self._fs.open(self._path(self._newest))
        except FileNotFoundError:
            # Somebody has moved it away, perhaps to where another of this name must not come.
            moved = self._newest
            self._find_newest()
            self._begin(max(moved, self._newest) + 1, lines)
            return
        with closing(file):
            if file.size() > self._size:
                file.truncate(self._size)
            file.pwritev([lines], self._size)
            file.fdatasync()
        self._size += len(lines)

    def _path(self, number: int) -> str:
        return f"{self._folder}/audit-{number:020}.jsonl"

    def _numbers(self) -> list[int]:
        names = self._fs.listdir(self._folder)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def _find_newest(self) -> None:
        is_new = not self._fs.exists(self._folder)
        self._fs.mkdir(self._folder)
        try:
            self._fs.sync_folder(parent_of(self._folder))
        except Exception:
            # Its name may be lost, and a second sync would not bring it back.
            if is_new:
                self._fs.remove_tree(self._folder)
            raise
        self._newest, self._size = max(self._numbers(), default=0), self._file_bytes
        # The process before may have been killed before it did this.
        self._fs.sync_folder(self._folder)
        if self._newest:
            with closing(self._fs.open(self._path(self._newest))) as file:
                size = file.size()
                end = file.pread(min(size, _END_BYTES), max(size - _END_BYTES, 0))
                # A crash may have left part of a line, a power cut zeros where it was not synced.
                if end.endswith(b"\n") and b"\0" not in end:
                    self._size = size

    def _begin(self, number: int, lines: bytes) -> None:
        replace_file(self._fs, self._path(number), [lines])
        self._fs.sync_folder(self._folder)
        self._newest, self._size = number, len(lines)
        # The lines are durable: a file that cannot be removed is tried again with the next.
        with suppress(StorageError, OSError):
            for old in self._numbers()[: -self._files_max]:
                self._fs.unlink(self._path(old))
