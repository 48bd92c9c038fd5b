"""Reserves file descriptors for the broker's own files.

When a file cannot be opened because no descriptor is free, a spare one is released for it. So
neither connections nor other parts of the program can keep the broker from opening its log and
hours.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

SPARES: Final = 16
"""Reserved descriptors: more than the broker ever opens before it closes a file again."""
NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors of a process, or a machine, that has no descriptor left."""

T = TypeVar("T")

_spares: list[int] = []
_wanted = 0


def hold_spares(count: int = SPARES) -> None:
    """Reserve `count` descriptors from now on."""
    global _wanted  # noqa: PLW0603 (descriptors belong to the process)
    _wanted = count
    refill()


def give_spare() -> bool:
    """Release one descriptor; False if none is reserved."""
    try:
        os.close(_spares.pop())
    except IndexError:
        return False
    return True


def with_spares(act: Callable[[], T]) -> T:
    """Call `act`; whenever no descriptor is free, release a spare one and call it again.

    `act` must be safe to repeat.
    """
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not give_spare():
                raise


def refill() -> None:
    """Reserve descriptors again, after a file was closed."""
    if len(_spares) < _wanted:
        with suppress(OSError):
            _spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            if len(_spares) < _wanted:
                refill()
