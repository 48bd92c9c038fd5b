"""Locks on a data folder: only one process serves it, and a backup can stop removal of its files.

Both are `flock`s, which the kernel releases when the owning process ends. A killed process leaves
no stale lock behind.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from delaylog.broker.host.settings import ConfigError, InUseError
from delaylog.storage.files.file_system import (
    FILE_MODE,
    NO_DESCRIPTOR,
    make_folder,
    raise_disk_error,
    refill,
)
from delaylog.storage.files.os_file_system import open_descriptor
from delaylog.storage.layout import HOLD

LOCK: Final = "lock"
"""Locked exclusively by the process that serves, verifies or restores a folder."""


def lock_folder(folder: str) -> int:
    """Create the folder if it is missing and lock it; returns the descriptor that owns the lock.

    Raises ConfigError if the folder cannot be used or another process has locked it.
    """
    try:
        make_folder(folder)
        fd = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        denied = f"; {ownership(folder)}" if isinstance(error, PermissionError) else ""
        text = f"data-dir {folder} cannot be used: {error.strerror}{denied}"
        raise ConfigError(text) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = holder_of(fd)
        os.close(fd)
        raise InUseError(f"data folder {folder} is in use by {holder}; stop it first") from None
    return fd


def unlock_folder(fd: int) -> None:
    """Release the lock that this descriptor owns, and close it.

    Closing alone would leave the folder locked while a forked child has the descriptor too. In such
    a child, closing alone is right: the lock is its parent's.
    """
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def ownership(path: str) -> str:
    """Who owns a path that this process may not use, and what to do."""
    at = Path(path)
    while not os.path.exists(at) and at != at.parent:
        at = at.parent
    found, user, group = os.stat(at), os.geteuid(), os.getegid()
    return (
        f"{at} belongs to user {found.st_uid} and group {found.st_gid} (mode "
        f"{found.st_mode & 0o7777:o}), and this process runs as {user} and {group}: run "
        f"`chown -R {user}:{group} {path}`"
    )


def holder_of(fd: int) -> str:
    """Who has locked the file: `process 4711`, or `another process` if the kernel does not say."""
    found = os.fstat(fd)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as table:
            # 1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF
            rows = [line.split() for line in table]
    except OSError:
        return "another process"
    pids = [row[4] for row in rows if row[1] == "FLOCK" and row[5] == device and row[4] != "0"]
    return f"process {pids[0]}" if pids else "another process"


@contextmanager
def suspended_retention(folder: str) -> Iterator[None]:
    """Stop the broker that serves the folder from removing segments and hours.

    Raises ConfigError and NoDescriptorError.
    """
    path = f"{folder}/{HOLD}"
    try:
        fd = open_descriptor(path, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise_disk_error(error, path)
        raise ConfigError(f"{folder} cannot be used: {error.strerror}") from None
    try:
        # A broker that checks for this lock owns it for a moment: wait for that.
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)
        refill()


def note_backup(folder: str, now_ms: int) -> None:
    """A backup of the folder is complete: `newest_backup_s` tells its time."""
    with suppress(OSError):
        # The backup is complete also where its process may not change the folder.
        os.utime(f"{folder}/{HOLD}", (now_ms / 1_000, now_ms / 1_000))


def newest_backup_s(folder: str) -> float | None:
    """Unix time of the newest backup of a folder; without one, when it was first served. None if
    it was not. The time is that of the file that backups lock, which a checkpoint makes.
    """
    for name in (HOLD, LOCK):
        with suppress(OSError):
            return os.stat(f"{folder}/{name}").st_mtime
    return None


def retention_suspended(folder: str) -> bool:
    """Whether a running backup needs the folder's files."""
    path = f"{folder}/{HOLD}"
    try:
        fd = open_descriptor(path, os.O_RDONLY | os.O_CREAT)
    except OSError as error:
        raise_disk_error(error, path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
        refill()
    return False
