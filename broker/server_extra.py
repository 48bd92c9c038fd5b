"""The extra `server`: what is said where only the client is installed.

The packages of the extra are found missing when a part of the broker imports them. So no table says
which verb or function needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PACKAGES: Final = frozenset(
    {"crc32c", "cronsim", "numpy", "prometheus_client", "sortedcontainers", "tzdata", "uvloop"}
)
"""Their import names."""


def is_missing(error: ImportError) -> bool:
    """Whether a package of the extra is not installed."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return error.name.partition(".")[0] in PACKAGES


def hint(what: str) -> str:
    """One line that names the command."""
    return f"{what} needs the broker, which is not installed; run: pip install 'delaylog[server]'"


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Raise ImportError with the command, where the block finds a package of the extra missing."""
    try:
        yield
    except ImportError as error:
        if not is_missing(error):
            raise
        raise ImportError(hint(what), name=error.name) from None
