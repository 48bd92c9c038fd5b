"""Records the calls of a delay queue's clients, and checks later whether its promises held.

Imports no other part of delaylog but for its verb, so the history of any queue can be checked.
docs/HISTORY.md describes the format and the rules. First file: `checker`. `names` has the names of
this package, which are imported when the first of them is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaylog.broker.history.names import *  # noqa: F403


def __getattr__(name: str) -> Any:
    names = import_module("delaylog.broker.history.names")
    if name not in (*names.__all__, "__all__"):
        raise AttributeError(f"module 'delaylog.broker.history' has no attribute {name!r}")
    return getattr(names, name)
