"""The leaves: parts that a broker runs without, each in folders of its own.

The core imports none of them. The file `leaf.py` in the folder of a leaf declares what it adds, and
this module finds the leaves that are installed. It is loaded by each start of the command line, so
a `leaf.py` and the `__init__.py` beside it import only this and `host.rows`: what a leaf adds is
named, or a function that imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from delaylog.extras import missing_part

if TYPE_CHECKING:
    from delaylog.broker.calls.operations import Handler
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.rows import MetricRow, Option
    from delaylog.broker.host.tls.client_tls import ClientTls
    from delaylog.broker.process.served import Endpoint, Served, Stop
    from delaylog.broker.web.mounts import Files, MountedApi, ReadsPage

FOLDERS: Final = ("camellia", "drills", "history", "push", "resp", "streams", "ui")
"""Where leaves may be, below `delaylog.broker`."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the command line. `delaylog.broker.cli.verbs` has those of the core."""

    name: str
    group: str
    module: str
    """Below the folder."""
    help: str
    calls: bool = True
    """Whether it calls a running broker."""
    parses: bool = True
    """Whether its arguments are declared here; a job on Spark parses its own."""
    folder: str = "cli"
    """Below `delaylog.broker`."""

    def function(self, what: str) -> Callable[[Any], Any]:
        """Its function of `arguments` or `command`, from its module."""
        module = import_module(f"delaylog.broker.{self.folder}.{self.module}")
        own: Callable[[Any], Any] | None = getattr(module, f"{self.name}_{what}", None)
        return partial(getattr(module, what), self.name) if own is None else own


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one leaf adds."""

    name: str
    """As an error names it."""
    folders: tuple[str, ...] = ()
    """Further folders that it needs, below `delaylog.broker`: without one it is missing."""
    verbs: tuple[Verb, ...] = ()
    options: tuple[Option, ...] = ()
    """Its settings. The table of the core has a place for them, and for its metrics."""
    configure: Callable[[Mapping[str, str], bool], Any] | None = None
    """Checks the values of its settings, by key; True: nobody has to authenticate. What it returns
    is in `Config.leaves`. Raises ConfigError.
    """
    listens: str = ""
    """The setting that is the address of its listener."""
    metrics: tuple[MetricRow, ...] = ()
    errors: tuple[tuple[str, str, str], ...] = ()
    """Modules, the errors that verbs raise on purpose, and the codes that `--json` shows."""
    api: Callable[[ServingNode, ClientTls | None], MountedApi] | None = None
    """Makes its API over a node, which trusts these certificates of the leader."""
    files: Callable[[], Files] | None = None
    """Its files for browsers."""
    calls: Callable[[], Mapping[str, Handler]] | None = None
    """The handlers of the native calls that it carries out, by the names of the calls."""
    page: Callable[[], ReadsPage] | None = None
    """Its page of the native API."""
    endpoint: Callable[[Served], Endpoint | None] | None = None
    """Makes its listener, if the configuration asks for one."""
    start: Callable[[Served, Mapping[str, str]], Stop] | None = None
    """Starts its work, once the process has these listeners; returns what stops it."""


@cache
def leaves() -> tuple[Leaf, ...]:
    """The leaves that are installed."""
    found = (_leaf_in(f"delaylog.broker.{folder}") for folder in FOLDERS)
    return tuple(leaf for leaf in found if leaf is not None)


def leaf_pages() -> dict[str, ReadsPage]:
    """Their pages, by path."""
    pages = [leaf.page() for leaf in leaves() if leaf.page is not None]
    return {page.path: page for page in pages}


def is_installed(name: str) -> bool:
    """Whether the leaf of this name is installed."""
    return _named(name) is not None


def options_of(name: str) -> tuple[Option, ...]:
    """The settings of a leaf, if it is installed."""
    leaf = _named(name)
    return () if leaf is None else leaf.options


def metrics_of(name: str) -> tuple[MetricRow, ...]:
    """The metrics of a leaf, if it is installed."""
    leaf = _named(name)
    return () if leaf is None else leaf.metrics


def needed(name: str) -> Leaf:
    """The leaf of this name. Raises ImportError with what installs it, if it is missing."""
    leaf = _named(name)
    if leaf is None:
        raise ImportError(missing_part(name))
    return leaf


def _named(name: str) -> Leaf | None:
    return next((leaf for leaf in leaves() if leaf.name == name), None)


def _leaf_in(folder: str) -> Leaf | None:
    try:
        leaf: Leaf = import_module(f"{folder}.leaf").LEAF
    except ModuleNotFoundError as error:
        if error.name not in (folder, f"{folder}.leaf"):
            raise
        return None
    return leaf if all(find_spec(f"delaylog.broker.{each}") for each in leaf.folders) else None
