"""Verbs that read folders and files without a broker: verify, backup, restore."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import SystemRandom

import orjson

from delaylog import __version__
from delaylog.broker.backup.copies import Manifest, Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.cli.failures import DONE, WRONG, UsageError
from delaylog.broker.cli.parser import add_examples, add_json, complete_folders
from delaylog.broker.cli.progress import Progress, scaled
from delaylog.broker.cli.values import time_text
from delaylog.broker.host.system.folder_lock import LOCK, holder_of
from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.files.file_system import FILE_MODE
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from delaylog.storage.layout import INDEX_ENTRY_SIZE, STATE_ENTRY_SIZE


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog verify`."""
    complete_folders(
        parser.add_argument(
            "data_dir", metavar="DATA_DIR", help="a data folder that no broker serves, or a backup"
        )
    )
    add_json(parser)
    add_examples(parser, "verify /var/lib/delaylog", "verify /mnt/backups/2026-01-31 --json")


def backup_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog backup`."""
    folder = "the data folder; a broker may be serving it"
    complete_folders(parser.add_argument("data_dir", metavar="DATA_DIR", help=folder))
    complete_folders(parser.add_argument("dest", metavar="DEST", help="the backup's new folder"))
    add_json(parser)
    add_examples(parser, "backup /var/lib/delaylog /mnt/backups/2026-01-31")


def restore_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog restore`."""
    complete_folders(parser.add_argument("backup", metavar="BACKUP", help="the backup's folder"))
    complete_folders(
        parser.add_argument("data_dir", metavar="DATA_DIR", help="absent, or an empty folder")
    )
    add_json(parser)
    add_examples(parser, "restore /mnt/backups/2026-01-31 /var/lib/delaylog")


@contextmanager
def locked_folder(folder: str) -> Iterator[None]:
    """Lock a data folder, so that no broker changes it meanwhile."""
    if not os.path.isdir(f"{folder}/log"):
        raise UsageError(f"{folder} is not a data folder: it has no log")
    fd = _open_lock(f"{folder}/{LOCK}")
    try:
        if fd is not None:
            _take(fd, folder)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _open_lock(path: str) -> int | None:
    """Open the lock file, creating it if needed.

    A read-only folder, such as a backup mounted read-only, may have none. Then no broker serves
    the folder, and the result is None.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UsageError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be opened: {error.strerror}") from None


def _take(fd: int, folder: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UsageError(f"{folder} is in use by {holder_of(fd)}; stop it first") from None


def _bytes_to_read(folder: str) -> int:
    """Estimate of the bytes that a verification reads: log, rows, records and states of rows."""
    total = 0
    for place, _, names in os.walk(folder):
        parts = os.path.relpath(place, folder).split("/")
        if parts[0] not in ("log", "hours"):
            continue
        with suppress(FileNotFoundError):
            sizes = {name: os.path.getsize(f"{place}/{name}") for name in names}
            rows = sizes.get("delay.index", 0) // INDEX_ENTRY_SIZE
            for name, size in sizes.items():
                total += min(size, rows * STATE_ENTRY_SIZE) if name.startswith("state") else size
    return total


def verify_command(args: argparse.Namespace) -> int:
    """`delaylog verify`: 0 when the folder is sound, 1 when something is damaged."""
    with locked_folder(args.data_dir), Progress("verify", quiet=args.json) as progress:
        report = Report()
        total = _bytes_to_read(args.data_dir)
        for at in verify_folder(ReadOnlyFileSystem(), args.data_dir, report):
            progress(at, report.bytes_read, max(total, report.bytes_read))
    if args.json:
        print(orjson.dumps(report.as_dict()).decode())
    else:
        _print(report)
    return DONE if report.sound else WRONG


def backup_command(args: argparse.Namespace) -> int:
    """`delaylog backup`: 0 when the backup is complete and has its final name."""
    with Progress("backup", quiet=args.json) as progress:
        manifest = take_backup(
            Route(ReadOnlyFileSystem(), args.data_dir, OsFileSystem(), args.dest),
            version=__version__,
            now_ms=_now_ms,
            progress=progress,
        )
    took_ms = manifest.ended_at_ms - manifest.began_at_ms
    _say(args, "backup", args.dest, manifest, took_ms)
    return DONE


def restore_command(args: argparse.Namespace) -> int:
    """`delaylog restore`: 0 when the data folder is complete."""
    began_ms = _now_ms()
    with Progress("restore", quiet=args.json) as progress:
        manifest = restore_backup(
            Route(ReadOnlyFileSystem(), args.backup, OsFileSystem(), args.data_dir),
            now_ms=began_ms,
            random=SystemRandom(),
            progress=progress,
        )
    _say(args, "restored", args.data_dir, manifest, _now_ms() - began_ms)
    if not args.json:
        print(
            "held: a broker of this folder delivers, pushes and fires nothing until `delaylog "
            "resume`, or a start with --release-hold"
        )
    return DONE


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _say(
    args: argparse.Namespace, what: str, folder: str, manifest: Manifest, took_ms: int
) -> None:
    if args.json:
        members = {
            what: folder,
            "source": manifest.source,
            "taken_at_ms": manifest.began_at_ms,
            "position": manifest.position,
            "end_position": manifest.end_position,
            "hours": manifest.hours,
            "rows": manifest.rows,
            "frames": manifest.frames,
            "files": len(manifest.files),
            "bytes": manifest.byte_count,
            "took_ms": took_ms,
        }
        if what == "restored":
            members["held"] = True
        print(orjson.dumps(members).decode())
        return
    print(
        f"{what} {folder}: {manifest.source} as of {time_text(manifest.began_at_ms)}; "
        f"{manifest.hours:,} hours, {manifest.rows:,} rows and {manifest.frames:,} frames of log, "
        f"{len(manifest.files):,} files, {scaled(manifest.byte_count, 'B')}, "
        f"{took_ms / 1000:.1f} s"
    )


def _print(report: Report) -> None:
    for finding in report.damage:
        print(f"DAMAGED  {finding.line()}")
    for finding in report.notes:
        print(f"note     {finding.line()}")
    print(
        f"{'sound' if report.sound else 'damaged'}: {report.files:,} files, "
        f"{report.bytes_read:,} bytes, {report.frames:,} frames, {report.rows:,} rows, "
        f"{report.states:,} states"
    )
