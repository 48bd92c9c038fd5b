"""Verbs that read a data folder by themselves: verify."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from delaylog.broker.config import ConfigError
from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.file_system import OsFileSystem

_PROGRESS_SECONDS = 0.2


@contextmanager
def held_folder(folder: str) -> Iterator[None]:
    """Hold the lock of a data folder, so that no broker changes it meanwhile."""
    if not os.path.isdir(f"{folder}/log"):
        raise ConfigError(f"{folder} is not a data folder: it has no log")
    try:
        fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigError(f"{folder} is in use by another process; stop it first") from None
    try:
        yield
    finally:
        os.close(fd)


def verify_command(args: argparse.Namespace) -> int:
    """`delaylog verify`: 0 when the folder is sound, 1 when something is damaged."""
    with held_folder(args.data_dir):
        work = verify_folder(OsFileSystem(), args.data_dir)
        shown = 0.0
        progress = sys.stderr.isatty()
        while True:
            try:
                at = next(work)
            except StopIteration as stop:
                report: Report = stop.value
                break
            if progress and time.monotonic() - shown > _PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"\r\x1b[K{at}", end="", file=sys.stderr, flush=True)
        if progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if args.json:
        print(orjson.dumps(report.as_dict()).decode())
    else:
        _print(report)
    return 0 if report.sound else 1


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
