"""The files of the audit log: where lines are appended, how files begin and are removed.

    DATA_DIR/audit/audit-00000000000000000001.jsonl    named by the number of its first line

The first line of each file (`file_begun`) states the chain of the line before, so a file can be
checked without the ones before it. Before a file is removed, a line (`removed`) that names its last
line and chain is durable: a file that is missing without this line was removed by somebody else.

Lines are durable when `write` returns. After a failed write, the file is truncated to the last
durable line before the next write, because the kernel may have dropped pages of a failed sync. Time
is an argument; `audit_log` has the thread that calls this.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

from delaylog.broker.host.audit.lines import (
    AUDIT,
    FILE_BEGUN,
    FIRST_CHAIN,
    LINE_BYTES_MAX,
    REMOVED,
    STARTED,
    AuditHead,
    AuditLine,
    Fact,
    decode_line,
    encode_line,
    split_line,
    time_ms,
    time_text,
)
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.storage.errors import StorageError
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.files.whole_files import replace_file

FOLDER: Final = "audit"
BATCH_BYTES: Final = 1 << 20
"""A write ends with the line that reaches this size, which bounds the damage of a power cut."""
TORN_BYTES_MAX: Final = BATCH_BYTES + 4 * LINE_BYTES_MAX
_DAY_MS: Final = 86_400_000
_NAME: Final = re.compile(r"audit-([0-9]{20})\.jsonl")


def file_name(first: int) -> str:
    """The name of the file whose first line has this number."""
    return f"audit-{first:020}.jsonl"


def first_lines(fs: FileSystem, folder: str) -> list[int]:
    """The numbers of the first lines of all files, in order."""
    names = fs.listdir(folder) if fs.exists(folder) else []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def torn_at(tail: bytes) -> int:
    """Size of the part of a file's end that a crash has not torn.

    A crash leaves an incomplete last line. A power cut may leave zeros as well, in sectors that
    were not synced; no line contains a zero.
    """
    hole = tail.find(b"\0")
    return tail.rfind(b"\n", 0, hole if hole >= 0 else len(tail)) + 1


def first_line(file: File) -> AuditLine:
    """The first line of a file. Raises ValueError."""
    line, _, _ = file.pread(LINE_BYTES_MAX, 0).partition(b"\n")
    return decode_line(split_line(line)[0])


def _last_line(file: File) -> tuple[int, AuditLine, str] | None:
    """(offset behind it, line, chain) of the last line that can be read; None without one."""
    size, window = file.size(), TORN_BYTES_MAX
    while True:
        start = max(size - window, 0)
        tail = file.pread(size - start, start)
        end = torn_at(tail)
        while end:
            begin = tail.rfind(b"\n", 0, end - 1) + 1
            try:
                body, chain = split_line(tail[begin : end - 1])
                return start + end, decode_line(body), chain
            except ValueError:
                end = begin
        if not start:
            return None
        window *= 8


def log_id(file: File) -> str | None:
    """The id of the audit log that a file belongs to, as its first line states it."""
    try:
        stated = first_line(file).facts.get("log")
    except ValueError:
        return None
    return stated if isinstance(stated, str) else None


def _began_ms(file: File) -> int:
    """The time of a file's first line; 0 if it is damaged, so that a new file begins."""
    try:
        return time_ms(first_line(file).time)
    except ValueError:
        return 0


class AuditFiles:
    """Appends lines. Every method may raise StorageError or OSError, and can be called again."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        node: int,
        settings: AuditSettings,
        new_id: str,
    ) -> None:
        """`new_id` = the id of the audit log if the folder has none yet."""
        self._fs = fs
        self._folder = folder
        self._node = node
        self._settings = settings
        self._end_found = False
        self._cut_bytes = 0
        self._path = ""
        self._file: File | None = None
        self._size = 0
        self._began_ms = 0
        self._old_removed = False
        self._own: list[AuditLine] = []
        """Lines about the log itself, which are written before all others."""
        self._end = AuditHead(node, new_id, 0, FIRST_CHAIN)

    @property
    def head(self) -> AuditHead | None:
        """The newest durable line; None before the first write. Any thread may ask."""
        end = self._end
        return end if end.n else None

    def write(self, lines: Sequence[AuditLine], now_ms: int) -> int:
        """Append the first of these lines durably, as many as one write takes; return how many."""
        if not self._end_found:
            self._find_end(now_ms)
        if self._path and self._file is None:
            self._open_file()
        if self._is_full(now_ms):
            self._begin_file(now_ms)
        parts, count, size = [], 0, 0
        n, chain = self._end.n, self._end.chain
        for line in (*self._own, *lines):
            n += 1
            line.n, line.node = n, self._node
            raw, chain = encode_line(line, chain)
            parts.append(raw)
            count += 1
            size += len(raw)
            if size >= BATCH_BYTES:
                break
        self._append(b"".join(parts))
        self._end = replace(self._end, n=n, chain=chain)
        own = len(self._own)
        del self._own[:count]
        return max(count - own, 0)

    def close(self) -> None:
        """Close the file; another write opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove_old(self, now_ms: int) -> None:
        """Remove the oldest files that the settings do not keep, each after a line that says so.

        Does nothing unless a file has begun since the last removal, which happens daily.
        """
        if self._old_removed:
            return
        self._old_removed = True
        try:
            self._remove_old(now_ms)
        except Exception:
            self._old_removed = False
            raise

    def _remove_old(self, now_ms: int) -> None:
        firsts = first_lines(self._fs, self._folder)
        for at, (first, following) in enumerate(pairwise(firsts)):
            with closing(self._fs.open(f"{self._folder}/{file_name(following)}")) as file:
                try:
                    header = first_line(file)
                except ValueError:
                    # Damaged: `verify` reports it, and the files before it are evidence.
                    return
            if not self._is_old(time_ms(header.time), len(firsts) - at, now_ms):
                return
            facts: dict[str, Fact] = {
                "file": file_name(first),
                "last": following - 1,
                "chain": header.facts.get("previous"),
            }
            self.write([self._line(REMOVED, now_ms, facts)], now_ms)
            self._fs.unlink(f"{self._folder}/{file_name(first)}")
            # In this order after a power cut too: a gap between two files is damage.
            self._fs.sync_folder(self._folder)

    # ------------------------------------------------------------------ decisions

    def _is_full(self, now_ms: int) -> bool:
        if not self._size:
            # No file yet, or its first line is not durable yet and waits in `_own`.
            return not self._path
        return self._size >= self._settings.file_bytes or now_ms - self._began_ms >= _DAY_MS

    def _is_old(self, ended_ms: int, files: int, now_ms: int) -> bool:
        """Whether to remove a file whose successor began at `ended_ms`, the oldest of `files`."""
        days, most = self._settings.keep_days, self._settings.keep_files
        return bool((days and now_ms - ended_ms > days * _DAY_MS) or (most and files > most))

    def _line(self, outcome: str, now_ms: int, facts: dict[str, Fact]) -> AuditLine:
        return AuditLine(call=AUDIT, outcome=outcome, time=time_text(now_ms), facts=facts)

    # ------------------------------------------------------------------ the disk

    def _begin_file(self, now_ms: int) -> None:
        self.close()
        self._path = f"{self._folder}/{file_name(self._end.n + 1)}"
        self._size, self._began_ms, self._old_removed = 0, now_ms, False
        facts: dict[str, Fact] = {"previous": self._end.chain, "log": self._end.log}
        self._own.insert(0, self._line(FILE_BEGUN, now_ms, facts))
        self._open_file()

    def _open_file(self) -> None:
        """Open the file, without what a failed write has left in it."""
        file = self._fs.open(self._path, create=True)
        try:
            if file.size() > self._size:
                file.truncate(self._size)
                # Otherwise a power cut could bring it back after the next file has begun.
                file.fdatasync()
        except Exception:
            file.close()
            raise
        self._file = file

    def _append(self, data: bytes) -> None:
        assert self._file is not None, "a file is open"
        try:
            self._file.pwritev([data], self._size)
            self._file.fdatasync()
            if not self._size:
                self._fs.sync_folder(self._folder)
        except Exception:
            self.close()
            if not self._size:
                # Its name may be lost, and a second sync of the folder would not bring it back.
                with suppress(StorageError, OSError):
                    self._fs.unlink(self._path)
            raise
        self._size += len(data)

    def _find_end(self, now_ms: int) -> None:
        """Find the last line. Cut what a crash has left behind it."""
        is_new = not self._fs.exists(self._folder)
        self._fs.mkdir(self._folder)
        try:
            self._fs.sync_folder(parent_of(self._folder))
        except Exception:
            # Its name may be lost, and a second sync would not bring it back.
            if is_new:
                self._fs.remove_tree(self._folder)
            raise
        firsts = first_lines(self._fs, self._folder)
        empty = False
        while firsts:
            path = f"{self._folder}/{file_name(firsts.pop())}"
            with closing(self._fs.open(path)) as file:
                size, found = file.size(), _last_line(file)
                end = found[0] if found else 0
                if size > end:
                    self._keep_aside(path, file.pread(size - end, end), end)
                    file.truncate(end)
                    self._cut_bytes += size - end
                # The process before may not have synced its last lines, or failed to: a sync writes
                # only pages that were written since.
                start = max(end - TORN_BYTES_MAX, 0)
                file.pwritev([file.pread(end - start, start)], start)
                file.fdatasync()
                began_ms, known_id = _began_ms(file), log_id(file)
            if found is not None:
                self._path, self._size, self._began_ms = path, end, began_ms
                log = known_id or self._end.log
                self._end = AuditHead(self._node, log, found[1].n, found[2])
                break
            empty = True
        self._fs.sync_folder(self._folder)
        self._own = [self._line(STARTED, now_ms, {"cut_bytes": self._cut_bytes})]
        self._end_found = True
        if empty:
            # The process ended while it began this file: begin it again.
            self._begin_file(now_ms)

    def _keep_aside(self, path: str, rest: bytes, offset: int) -> None:
        """Keep what is cut if it is more than an incomplete line: it may be evidence."""
        if b"\n" in rest:
            replace_file(self._fs, f"{path}.cut-{offset}", [rest])
