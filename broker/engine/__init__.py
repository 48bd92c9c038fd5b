"""The engine: the synchronous, deterministic heart of the broker."""

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.settings import TopicSettings

__all__ = ["Engine", "EngineError", "Limits", "Topic", "TopicSettings"]
