"""Verify of a folder, run to its end."""

from __future__ import annotations

from pathlib import Path

from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import OsFileSystem


def verify(folder: Path, fs: FileSystem | None = None) -> Report:
    """What `delaylog verify` reports of a folder."""
    report = Report()
    for _ in verify_folder(fs or OsFileSystem(), str(folder), report):
        pass
    return report
