"""Prevents a broker from deleting files while they are copied, with the lock that backups use.

A shared lock on the file `hold` of a data folder suspends retention. The kernel releases the lock
when the process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from delaylog.storage.layout import HOLD


@contextmanager
def suspended_retention(folder: str) -> Iterator[None]:
    """Hold the lock, if the file exists: a backup has none."""
    try:
        descriptor = os.open(f"{folder}/{HOLD}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        # The broker takes the lock briefly to check for holders, so wait.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
