"""Keeps a broker from removing files while they are copied: the same lock as a backup's.

Whoever has the file `hold` of a data folder locked, shared, holds retention. The kernel drops the
lock with the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from delaylog.storage.layout import HOLD


@contextmanager
def held_retention(folder: str) -> Iterator[None]:
    """Hold it where there is something to hold: a backup has no such file."""
    try:
        descriptor = os.open(f"{folder}/{HOLD}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        # A broker that looks for holds has the lock for a moment: wait for it.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
