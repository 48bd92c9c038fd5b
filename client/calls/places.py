"""The URL paths of topics and their subresources in one namespace."""

from __future__ import annotations

from functools import lru_cache

from delaylog.client.calls.call import segment
from delaylog.client.wire.checks import check_namespace


class Places:
    """The URL paths in one namespace."""

    def __init__(self, namespace: str = "default") -> None:
        check_namespace(namespace)
        self.namespace = namespace
        self.topics = f"/v1/ns/{segment(namespace)}/topics"

    def of(self, topic: str, *rest: str) -> str:
        """The path of a topic, or of a resource below it."""
        return _path(self.topics, topic, *rest)


@lru_cache(1_024)
def _path(topics: str, topic: str, *rest: str) -> str:
    """Build a path. Results are cached, since most paths are used repeatedly."""
    if not topic:
        raise ValueError("a topic has a name")
    return "/".join((topics, *map(segment, (topic, *rest))))
