"""The leaves: parts that a broker runs without, each in folders of its own.

The core imports none of them. The file `leaf.py` in the folder of a leaf declares what it adds, and
this module finds the leaves that are installed. Here are their settings and metrics, which the host
asks for; `process/leaves.py` has the rest. Each start of the command line loads them, so a
`leaf.py` and the `__init__.py` beside it import little: what a leaf adds is named, or a function
that imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol

from delaylog.broker.host.rows import MetricRow, Option

FOLDERS: Final = ("camellia", "drills", "history", "push", "resp", "streams", "ui")
"""Where leaves may be, below `delaylog.broker`."""


class LeafRows(Protocol):
    """What the host asks of a leaf."""

    @property
    def name(self) -> str:
        """As an error names it."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Further folders that it needs, below `delaylog.broker`: without one it is missing."""

    @property
    def options(self) -> tuple[Option, ...]:
        """Its settings. The table of the core has a place for them, and for its metrics."""

    @property
    def configure(self) -> Callable[[Mapping[str, str], bool], Any] | None:
        """Checks the values of its settings, by key; True: nobody has to authenticate. What it
        returns is in `Config.leaves`. Raises ConfigError.
        """

    @property
    def listens(self) -> str:
        """The setting that is the address of its listener."""

    @property
    def metrics(self) -> tuple[MetricRow, ...]:
        """Its metrics."""


@cache
def installed() -> tuple[Any, ...]:
    """The `LEAF` of each leaf that is installed."""
    found = (_leaf_in(f"delaylog.broker.{folder}") for folder in FOLDERS)
    return tuple(leaf for leaf in found if leaf is not None)


def leaf_rows() -> tuple[LeafRows, ...]:
    """What the host asks of the leaves that are installed."""
    return installed()


def named(name: str) -> LeafRows | None:
    """The leaf of this name, if it is installed."""
    return next((leaf for leaf in leaf_rows() if leaf.name == name), None)


def is_installed(name: str) -> bool:
    """Whether the leaf of this name is installed."""
    return named(name) is not None


def options_of(name: str) -> tuple[Option, ...]:
    """The settings of a leaf, if it is installed."""
    leaf = named(name)
    return () if leaf is None else leaf.options


def metrics_of(name: str) -> tuple[MetricRow, ...]:
    """The metrics of a leaf, if it is installed."""
    leaf = named(name)
    return () if leaf is None else leaf.metrics


def _leaf_in(folder: str) -> LeafRows | None:
    try:
        leaf: LeafRows = import_module(f"{folder}.leaf").LEAF
    except ModuleNotFoundError as error:
        if error.name not in (folder, f"{folder}.leaf"):
            raise
        return None
    return leaf if all(find_spec(f"delaylog.broker.{each}") for each in leaf.folders) else None
