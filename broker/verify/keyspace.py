"""Verify the keyspace's snapshots: every checksum, and that each checkpoint has what it needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator

from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, Reader, position_of_name
from delaylog.broker.engine.keyspace.keyspace_part import keyspace_part
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

    `bases` = for each intact checkpoint: the base from which a start restores the keyspace, and the
    checkpoint's position.
    """
    place = f"{folder}/{FOLDER}"
    names = fs.listdir(place) if fs.exists(place) else []
    wanted = {base.file for base, _ in bases if base.file}
    for name in sorted(wanted - set(names)):
        report.damaged(f"{FOLDER}/{name}", 0, "a snapshot that a checkpoint names is missing")
    for name in names:
        if position_of_name(name) is None:
            report.note(f"{FOLDER}/{name}", 0, "not a snapshot; a start removes unfinished ones")
            continue
        size = yield from _file(fs, folder, name, report)
        for base, _ in bases:
            if base.file == name and size is not None and base.size != size:
                what = f"{size} bytes, but the checkpoint says {base.size}"
                report.damaged(f"{FOLDER}/{name}", 0, what)
        if name not in wanted and bases:
            report.note(f"{FOLDER}/{name}", 0, "a snapshot that no checkpoint names")
    for base, position in bases:
        first, last = (bisect_left(log.keyspace, at) for at in (base.position, position))
        if base.position < log.first and base.frames:
            what = f"the log begins here, but the keyspace needs frames from {base.position} on"
            report.damaged("log", log.first, what)
        elif base.frames != last - first:
            what = (
                f"{last - first} frames of the keyspace from here to {position}; the checkpoint "
                f"counts {base.frames}"
            )
            report.damaged("log", base.position, what)


def _file(
    fs: FileSystem, folder: str, name: str, report: Report
) -> Generator[None, None, int | None]:
    """Check one file; return its size if it is intact."""
    report.files += 1
    part = keyspace_part()
    file = fs.open(f"{folder}/{FOLDER}/{name}")
    try:
        report.bytes_read += file.size()
        check = part.ChunkCheck(Reader(file))
        while check.next() is not None:
            yield
        if check.summary.position != position_of_name(name):
            what = f"its position is {check.summary.position}, which its name does not say"
            report.damaged(f"{FOLDER}/{name}", 0, what)
            return None
        return check.summary.size
    except part.SnapshotError as error:
        report.damaged(f"{FOLDER}/{name}", error.offset, error.what)
        return None
    finally:
        file.close()
