"""Where things are: paths of topics and what stands under them, in one namespace."""

from __future__ import annotations

from delaylog.client.calls.call import segment
from delaylog.client.checks import check_namespace


class Places:
    """The paths of a namespace; those of a topic that was asked for lately are kept."""

    def __init__(self, namespace: str = "default") -> None:
        check_namespace(namespace)
        self.namespace = namespace
        self.topics = f"/v1/ns/{segment(namespace)}/topics"
        self._of: dict[tuple[str, ...], str] = {}

    def of(self, topic: str, *rest: str) -> str:
        """The path of something under a topic."""
        if len(rest) > 1:
            return self._path(topic, *rest)
        known = self._of.get((topic, *rest))
        if known is None:
            if len(self._of) >= 10_000:
                self._of.clear()
            known = self._of[(topic, *rest)] = self._path(topic, *rest)
        return known

    def _path(self, *words: str) -> str:
        if not words[0]:
            raise ValueError("a topic has a name")
        return "/".join((self.topics, *map(segment, words)))
