"""The embedded nodes of this process: no folder is opened twice, and a fork's child lets go of all.

The child has the parent's memory and none of its threads, and two that write a folder ruin it.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from delaylog.broker.engine.engine import Engine


class Forkable(Protocol):
    """A node that a fork's child has and must not use."""

    engine: Engine
    closed: bool

    def begin_forked(self) -> None:
        """Let go of everything: this is the child."""


_nodes: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(node: Forkable) -> None:
    """A node has a folder of this process."""
    _nodes.add(node)


def is_open_here(folder: str) -> bool:
    """Whether a broker of this very process has the folder."""
    return any(_same(node.engine.folder, folder) for node in list(_nodes) if not node.closed)


def _same(one: str, other: str) -> bool:
    """Whether two paths name one folder; one that was removed under its broker is no other's."""
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _in_forked_child() -> None:
    for node in list(_nodes):
        node.begin_forked()


os.register_at_fork(after_in_child=_in_forked_child)
