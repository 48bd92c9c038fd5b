"""An audit log on a disk in memory, and what `verify` says of it."""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.broker.host.audit.files import FOLDER, AuditFiles, file_name, first_lines, torn_at
from delaylog.broker.host.audit.lines import (
    AuditHead,
    AuditLine,
    decode_line,
    split_line,
    time_text,
)
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.broker.verify.audit import verify_audit
from delaylog.broker.verify.report import Report
from delaylog.storage.files.file_system import FileSystem
from tests.storage.fake_disk import FakeDisk

PLACE = f"data/{FOLDER}"
ID = "a1" * 16
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
SMALL = AuditSettings(file_bytes=2_000, keep_days=3)


def a_line(call: str = "putTopic", now_ms: int = NOW_MS) -> AuditLine:
    """A line as a face makes it."""
    return AuditLine(
        call=call,
        time=time_text(now_ms),
        principal="alice",
        address="10.0.0.7",
        face="http",
        right="admin",
        topic="reminders",
        request_id="r1",
        facts={"retries_max": 5},
    )


def files_on(disk: FakeDisk, settings: AuditSettings = SMALL) -> AuditFiles:
    """The log's files, opened as by a new process."""
    disk.mkdir("data")
    return AuditFiles(disk, PLACE, 2, settings, ID)


def write_all(files: AuditFiles, lines: Sequence[AuditLine], now_ms: int = NOW_MS) -> None:
    """Write every line."""
    written = 0
    while written < len(lines):
        written += files.write(lines[written:], now_ms)


def lines_of(fs: FileSystem) -> list[AuditLine]:
    """Every line of all files."""
    found: list[AuditLine] = []
    for first in first_lines(fs, PLACE):
        file = fs.open(f"{PLACE}/{file_name(first)}")
        raw = file.pread(file.size(), 0)
        file.close()
        found += [decode_line(split_line(each)[0]) for each in raw[: torn_at(raw)].splitlines()]
    return found


def verified(fs: FileSystem, heads: Sequence[AuditHead] = ()) -> Report:
    """What `verify` says."""
    report = Report()
    for _ in verify_audit(fs, "data", report, heads, 2):
        pass
    return report
