"""Descriptors held back for the broker's own files.

When a file cannot be opened because no descriptor is free, a spare one is given up for it. So
connections, or other parts of the program, cannot keep the broker from its log and its hours.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

SPARES: Final = 16
"""Descriptors that are held back: more than the broker opens between two files that it closes."""
NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""What the system says when the process, or the machine, has no descriptor left."""

_held: list[int] = []
_wanted = 0


def hold_spares(count: int = SPARES) -> None:
    """Hold `count` descriptors back from now on."""
    global _wanted  # noqa: PLW0603 (descriptors belong to the process)
    _wanted = count
    refill()


def give_spare() -> bool:
    """Free one descriptor; False if none is held."""
    try:
        os.close(_held.pop())
    except IndexError:
        return False
    return True


def refill() -> None:
    """Take spares again, after a file was closed."""
    if len(_held) < _wanted:
        with suppress(OSError):
            _held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            if len(_held) < _wanted:
                refill()
