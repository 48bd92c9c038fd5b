"""The engine: the synchronous, deterministic heart of the broker.

Its names are looked up when they are first used: whoever wants the limits alone, as each
`delaylog` command does for its options, does not wait for the whole engine to be imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaylog.broker.engine.engine import Engine
    from delaylog.broker.engine.errors import EngineError
    from delaylog.broker.engine.limits import Limits
    from delaylog.broker.engine.membership import Membership
    from delaylog.broker.engine.model import Topic
    from delaylog.broker.engine.settings import TopicSettings

__all__ = ["Engine", "EngineError", "Limits", "Membership", "Topic", "TopicSettings"]

_HOMES: Final = {
    "Engine": "engine",
    "EngineError": "errors",
    "Limits": "limits",
    "Membership": "membership",
    "Topic": "model",
    "TopicSettings": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
