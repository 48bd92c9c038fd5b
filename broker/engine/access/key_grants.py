"""Grants on topics that follow from a principal's rules for Redis commands.

A rule such as `+@dlsend ~orders*` allows DL.SEND to topics whose names match the key pattern. The
same right then holds for HTTP, because all faces ask the same permissions. A pattern without a
slash matches topics of the default namespace, one with a slash `NAMESPACE/TOPIC`, and `~*` every
topic of every namespace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from delaylog.broker.engine.access.grants import DEFAULT_NAMESPACE, TopicKey
from delaylog.broker.keyspace.access.rules import ALL_KEYS, of_topics, parse_known
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.globs import Match, matcher

RIGHTS_OF: Final[dict[str, frozenset[str]]] = {
    "dlsend": frozenset({"send"}),
    "dlreceive": frozenset({"receive"}),
    "dlread": frozenset({"read", "bodies"}),
    "dlchange": frozenset({"change"}),
}
"""The rights of each category of DL.* commands."""


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """Rights on all topics, with their groups, whose names match a glob pattern of Redis."""

    rights: frozenset[str]
    pattern: str
    _match: Match = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_match", matcher(self.pattern.encode()))

    def holds_for(self, key: TopicKey) -> bool:
        """Whether the topic matches."""
        namespace, topic = key
        if self.is_unlimited:
            return True
        if "/" in self.pattern:
            return bool(self._match(f"{namespace}/{topic}".encode()))
        return namespace == DEFAULT_NAMESPACE and bool(self._match(topic.encode()))

    def holds_for_group(self, group: str | None) -> bool:  # noqa: ARG002 (as of Grant)
        """Return True: the rights hold for all groups of a topic."""
        return True

    @property
    def is_unlimited(self) -> bool:
        """Whether it holds for every topic."""
        return self.pattern == ALL_KEYS.pattern

    def __str__(self) -> str:
        return f"{','.join(sorted(self.rights))}:{self.pattern}"


@lru_cache(maxsize=1_024)
def grants_of(words: tuple[str, ...]) -> tuple[KeyGrant, ...]:
    """The grants that follow from stored rules."""
    found = []
    for category, patterns in of_topics(parse_known(words)):
        for each in patterns:
            try:
                found.append(KeyGrant(RIGHTS_OF[category], each.pattern))
            except CommandError:
                # The pattern is too long for this release.
                continue
    return tuple(found)
