"""Where things are: paths of topics and what stands under them, in one namespace."""

from __future__ import annotations

from functools import lru_cache

from delaylog.client.calls.call import segment
from delaylog.client.wire.checks import check_namespace


class Places:
    """The paths of a namespace."""

    def __init__(self, namespace: str = "default") -> None:
        check_namespace(namespace)
        self.namespace = namespace
        self.topics = f"/v1/ns/{segment(namespace)}/topics"

    def of(self, topic: str, *rest: str) -> str:
        """The path of something under a topic."""
        return _path(self.topics, topic, *rest)


@lru_cache(1_024)
def _path(topics: str, topic: str, *rest: str) -> str:
    """Kept for a while, since most are asked for again and again."""
    if not topic:
        raise ValueError("a topic has a name")
    return "/".join((topics, *map(segment, (topic, *rest))))
