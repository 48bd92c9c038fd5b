"""The extras of the package: what is said where a part of it is imported and its packages are not.

The packages of an extra are found missing when a public module imports them. So no table says which
verb or function needs them; this one has the packages, by their import names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

EXTRAS: Final[Mapping[str, frozenset[str]]] = {
    "server": frozenset(
        {"crc32c", "cronsim", "numpy", "prometheus_client", "sortedcontainers", "tzdata", "uvloop"}
    ),
    "cluster": frozenset({"cryptography", "raftos"}),
    "oidc": frozenset({"joserfc"}),
    "tls": frozenset({"cryptography"}),
    "redis": frozenset({"lupa"}),
    "celery": frozenset({"celery", "kombu"}),
    "dramatiq": frozenset({"dramatiq"}),
    "taskiq": frozenset({"taskiq"}),
    "prometheus": frozenset({"prometheus_client"}),
    "opentelemetry": frozenset({"opentelemetry"}),
    "arrow": frozenset({"pyarrow"}),
    "spark": frozenset({"pandas", "pyarrow", "pyspark", "pyspark_delaylog"}),
}

PUSH: Final = "push"
REDIS: Final = "Redis endpoint"
STREAMS: Final = "streams"
"""Parts of the package itself that an installation may lack, as errors name them."""


def is_missing(error: ImportError, extra: str = "server") -> bool:
    """Whether a package of the extra is not installed."""
    # An error of `absent` has that of the import as its context.
    first = error if isinstance(error, ModuleNotFoundError) else error.__context__
    if not isinstance(first, ModuleNotFoundError) or first.name is None:
        return False
    return first.name.partition(".")[0] in EXTRAS[extra]


def command(extra: str) -> str:
    """What installs the packages of an extra."""
    assert extra in EXTRAS, "each extra is in the table"
    return f"pip install 'delaylog[{extra}]'"


def hint(what: str, extra: str = "server", package: str = "") -> str:
    """One line that names the command."""
    needed = "the broker" if extra == "server" else package
    return f"{what} needs {needed}, which is not installed; run: {command(extra)}"


def missing_part(part: str) -> str:
    """One line that names the command, where a part of the package itself is missing."""
    again = "pip install --force-reinstall --no-deps delaylog"
    return f"this installation of delaylog has no {part}; run: {again}"


def absent(error: ImportError, what: str, extra: str = "server") -> ImportError:
    """The error to raise where an import failed: with the command, if a package is missing."""
    if not is_missing(error, extra):
        return error
    assert error.name is not None, "a missing package has a name"
    return ImportError(hint(what, extra, error.name.partition(".")[0]), name=error.name)


@contextmanager
def needed_by(what: str, extra: str = "server") -> Iterator[None]:
    """Raise ImportError with the command, where the block finds a package of the extra missing."""
    try:
        yield
    except ImportError as error:
        raise absent(error, what, extra) from None
