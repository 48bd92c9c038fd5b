"""What a leaf adds to the process, the HTTP faces and the command line; see `broker/leaves.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from delaylog.broker.leaves import installed
from delaylog.extras import missing_part

if TYPE_CHECKING:
    from delaylog.broker.calls.operations import Handler
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.rows import MetricRow, Option
    from delaylog.broker.host.tls.contexts import ClientTls
    from delaylog.broker.process.parts import Endpoint, Served, Stop
    from delaylog.broker.web.mounts import Files, MountedApi, ReadsPage


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

    # What `broker/leaves.py` says of these holds for all of them.
    name: str
    folders: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    configure: Callable[[Mapping[str, str], bool], Any] | None = None
    listens: str = ""
    metrics: tuple[MetricRow, ...] = ()

    verbs: tuple[Verb, ...] = ()
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


def leaves() -> tuple[Leaf, ...]:
    """The leaves that are installed."""
    return installed()


def leaf_pages() -> dict[str, ReadsPage]:
    """Their pages, by path."""
    pages = [leaf.page() for leaf in leaves() if leaf.page is not None]
    return {page.path: page for page in pages}


def needed(name: str) -> Leaf:
    """The leaf of this name. Raises ImportError with what installs it, if it is missing."""
    leaf = next((leaf for leaf in leaves() if leaf.name == name), None)
    if leaf is None:
        raise ImportError(missing_part(name))
    return leaf
