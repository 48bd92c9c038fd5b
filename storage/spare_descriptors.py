"""Descriptors held back for the broker's own files.

When a file cannot be opened because no descriptor is free, a spare one is given up for it. So
connections, or other parts of the program, cannot keep the broker from its log and its hours.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

SPARES: Final = 16
"""Descriptors that are held back: more than the broker opens between two files that it closes."""
NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""What the system says when the process, or the machine, has no descriptor left."""

T = TypeVar("T")

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


def with_spares(act: Callable[[], T]) -> T:
    """Do what opens files, with spares given up for them where none is free. It may begin anew."""
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not give_spare():
                raise


def refill() -> None:
    """Take spares again, after a file was closed."""
    if len(_held) < _wanted:
        with suppress(OSError):
            _held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            if len(_held) < _wanted:
                refill()
