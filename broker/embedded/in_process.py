"""The embedded nodes of this process: no folder is opened twice, and a forked child uses none.

A forked child has the parent's memory but none of its threads, and two processes that write one
folder would damage it.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from delaylog.broker.engine.engine import Engine


class Forkable(Protocol):
    """A node that a forked child inherits and must not use."""

    engine: Engine
    ended: bool

    def begin_forked(self) -> None:
        """Mark the node ended: this is the forked child."""


_nodes: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(node: Forkable) -> None:
    """Register a node that has opened a folder."""
    _nodes.add(node)


def is_open_here(folder: str) -> bool:
    """Whether a broker of this process uses the folder, until its close has ended."""
    return any(_same(node.engine.folder, folder) for node in list(_nodes) if not node.ended)


def _same(one: str, other: str) -> bool:
    """Whether two paths name the same folder; a removed folder is not the same as any other."""
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _in_forked_child() -> None:
    for node in list(_nodes):
        node.begin_forked()


os.register_at_fork(after_in_child=_in_forked_child)
