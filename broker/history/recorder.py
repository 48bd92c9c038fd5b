"""Records histories: a client's calls and marks, buffered, as JSON lines in a file.

Each process writes a separate file, in whole lines: processes need no lock, and a killed client
loses at most its buffer. `delaylog.broker.history.model` describes the format. Fields that are
`None` are left out, except `ok`.
"""

import gzip
import os
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Self, TypedDict, Unpack, cast

import orjson

BUFFER_BYTES = 256 * 1024
"""Size at which the buffer is written: large enough for about a thousand calls a write, small
enough that little is lost with a killed client."""


class CallFields(TypedDict, total=False):
    """The optional fields of a call: of one message, or, in the plural, of several."""

    id: str | None
    due: int | None
    expires: int | None
    now: int | None
    attempt: int | None
    lease: str | None
    lease_until: int | None
    lease_ms: int | None
    key: str | None
    group: str | None
    body: str | None
    priority: int | None
    result: str | None
    force: bool | None
    node: int | None
    answer: Mapping[str, Any] | None
    at: int | None
    since: int | None
    until: int | None
    ids: Sequence[str] | None
    dues: Sequence[int | None] | None
    expiries: Sequence[int | None] | None
    attempts: Sequence[int | None] | None
    leases: Sequence[str | None] | None
    keys: Sequence[str | None] | None
    bodies: Sequence[str | None] | None
    priorities: Sequence[int | None] | None
    results: Sequence[str | None] | None
    oks: Sequence[bool | None] | None


class ForkedRecorder(Exception):
    """The recorder was created in another process. Create one here, with another file."""


class HistoryRecorder:
    """Appends one client's calls and marks to its file; threads may share it, processes not."""

    def __init__(
        self, path: str | Path, *, client: str | None = None, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        self.path = Path(path)
        self._client = client
        self._buffer_bytes = buffer_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._lock = threading.Lock()
        self._process = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o644)

    def call(
        self, op: str, t0: int, t1: int, ok: bool | None, **fields: Unpack[CallFields]
    ) -> None:
        """Record a call that ended; `t1` is raised to `t0` if the wall clock was set back."""
        record: dict[str, object] = {"t0": t0, "t1": max(t0, t1), "op": op, "ok": ok}
        record.update((name, value) for name, value in fields.items() if value is not None)
        if self._client is not None:
            record["client"] = self._client
        self._write(record)

    def mark(
        self,
        kind: str,
        t: int,
        *,
        until: int | None = None,
        planned: bool = False,
        group: str | None = None,
    ) -> None:
        """Record a mark and flush at once, since this process may be killed next."""
        record: dict[str, object] = {"mark": kind, "t": t}
        if until is not None:
            record["until"] = until
        if planned:
            record["planned"] = True
        if group is not None:
            record["group"] = group
        self._write(record)
        self.flush()

    def flush(self) -> None:
        """Write all buffered lines to the file."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Flush and close; closing twice is fine."""
        with self._lock:
            if self._file < 0:
                return
            self._flush()
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: dict[str, object]) -> None:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            self._lines.append(line)
            self._size += len(line)
            if self._size >= self._buffer_bytes:
                self._flush()

    def _flush(self) -> None:
        if os.getpid() != self._process:
            # The buffer is the parent's: writing it here would record its calls twice.
            raise ForkedRecorder(f"{self.path} belongs to process {self._process}")
        data = memoryview(b"".join(self._lines))
        self._lines, self._size = [], 0
        while data:
            data = data[os.write(self._file, data) :]


def body_hash(body: bytes) -> str:
    """The hash that a sender and a receiver record for one body: 8 bytes of blake2b in hex."""
    return blake2b(body, digest_size=8).hexdigest()


def open_history(path: str | Path) -> BinaryIO:
    """Open a history for reading; decompress it if its name ends in `.gz`."""
    if str(path).endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")
