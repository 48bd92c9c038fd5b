"""Verify the keyspace's snapshots: every seal, and that each checkpoint finds what it needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator

from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, Reader, position_of_name
from delaylog.broker.keyspace.snapshots.layout import SnapshotError
from delaylog.broker.keyspace.snapshots.reading import ChunkCheck
from delaylog.broker.verify.physical_log import LogRange
from delaylog.broker.verify.report import Report
from delaylog.storage.files.file_system import FileSystem


def verify_keyspace(
    fs: FileSystem,
    folder: str,
    bases: list[tuple[KeyspaceBase, int]],
    log: LogRange,
    report: Report,
) -> Generator[None, None, None]:
    """Check all snapshots, yielding now and then.

    `bases` = of each checkpoint that is whole, what the keyspace comes back from, and its position.
    """
    place = f"{folder}/{FOLDER}"
    names = fs.listdir(place) if fs.exists(place) else []
    wanted = {base.file for base, _ in bases if base.file}
    for name in sorted(wanted - set(names)):
        report.damaged(f"{FOLDER}/{name}", 0, "a snapshot that a checkpoint names is missing")
    for name in names:
        if position_of_name(name) is None:
            report.note(f"{FOLDER}/{name}", 0, "not a snapshot; an unfinished one is removed")
            continue
        size = yield from _file(fs, folder, name, report)
        for base, _ in bases:
            if base.file == name and size is not None and base.size != size:
                what = f"{size} bytes, the checkpoint names {base.size}"
                report.damaged(f"{FOLDER}/{name}", 0, what)
        if name not in wanted and bases:
            report.note(f"{FOLDER}/{name}", 0, "a snapshot that no checkpoint names")
    for base, position in bases:
        first, last = (bisect_left(log.keyspace, at) for at in (base.position, position))
        if base.position < log.first and base.frames:
            what = f"the log begins here, but the keyspace needs it from {base.position} on"
            report.damaged("log", log.first, what)
        elif base.frames != last - first:
            what = f"{last - first} frames of the keyspace up to {position}, not {base.frames}"
            report.damaged("log", base.position, what)


def _file(
    fs: FileSystem, folder: str, name: str, report: Report
) -> Generator[None, None, int | None]:
    """Check one file; return its size if it is intact."""
    report.files += 1
    file = fs.open(f"{folder}/{FOLDER}/{name}")
    try:
        report.bytes_read += file.size()
        check = ChunkCheck(Reader(file))
        while check.next() is not None:
            yield
        if check.summary.position != position_of_name(name):
            report.damaged(f"{FOLDER}/{name}", 0, f"it stands at {check.summary.position}")
            return None
        return check.summary.size
    except SnapshotError as error:
        report.damaged(f"{FOLDER}/{name}", error.offset, error.what)
        return None
    finally:
        file.close()
