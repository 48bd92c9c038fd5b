"""Grants: which rights a principal has on which topics and groups, and the decision on a call.

A grant is written `RIGHTS[:[NAMESPACE/]TOPIC[:GROUP]]`. RIGHTS are rights and roles, separated by
commas. The other parts are patterns, in which `*` matches any text:

    send:orders.*                    send to topics of the default namespace
    receive:billing/orders:workers   receive as one group of one topic
    viewer                           read everything, in every namespace

A grant without a topic holds for all topics of all namespaces, one without a group for all groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, get_args

from delaylog.broker.engine.errors import BadRequestError
from delaylog.contract.calls.call import Right

TopicKey = tuple[str, str]
"""Namespace and topic."""

RIGHTS: Final[frozenset[str]] = frozenset(get_args(Right)) - {"any"}
OF_BROKER: Final = frozenset({"operate", "metrics", "dashboard", "redis"})
"""Rights on the broker as a whole, not on topics."""
ROLES: Final[dict[str, frozenset[str]]] = {
    "producer": frozenset({"send"}),
    "consumer": frozenset({"receive"}),
    "viewer": frozenset({"read", "metrics", "dashboard"}),
    "operator": frozenset({"read", "change", "operate", "metrics", "dashboard"}),
    "admin": RIGHTS,
}
_ROLE_OF: Final = {rights: role for role, rights in ROLES.items()}
DEFAULT_NAMESPACE: Final = "default"
PATTERN_CHARS_MAX: Final = 200
_DECISIONS_KEPT: Final = 4_096
_KEPT_CHARS_MAX: Final = 200
"""Decisions on longer names are not cached. Only camellia and Redis clients can send such names."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on all topics and groups whose names match the patterns."""

    rights: frozenset[str]
    namespace: str = "*"
    topic: str = "*"
    group: str = "*"
    _namespaces: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _topics: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _groups: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_namespaces", _matcher(self.namespace))
        object.__setattr__(self, "_topics", _matcher(self.topic))
        object.__setattr__(self, "_groups", _matcher(self.group))

    def holds_for(self, key: TopicKey) -> bool:
        """Whether the topic matches."""
        namespace, topic = key
        return bool(self._namespaces.fullmatch(namespace) and self._topics.fullmatch(topic))

    def holds_for_group(self, group: str | None) -> bool:
        """Whether the group matches; None = the topic with all its groups."""
        return self.group == "*" or (group is not None and bool(self._groups.fullmatch(group)))

    @property
    def is_unlimited(self) -> bool:
        """Whether it holds for every topic and group."""
        return self.namespace == self.topic == self.group == "*"

    def __str__(self) -> str:
        if self.is_unlimited and self.rights in _ROLE_OF:
            return _ROLE_OF[self.rights]
        rights = ",".join(sorted(self.rights))
        if self.is_unlimited:
            return rights
        group = "" if self.group == "*" else f":{self.group}"
        return f"{rights}:{self.namespace}/{self.topic}{group}"


def _matcher(pattern: str) -> re.Pattern[str]:
    """The names that match a pattern.

    Each star but the last takes the shortest match and never backtracks. Otherwise a caller could
    choose a name that takes hours: time grew with its length to the power of the number of stars.
    """
    first, *rest = map(re.escape, pattern.split("*"))
    last = f".*{rest.pop()}" if rest else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in rest) + last, re.DOTALL)


def parse_grant(text: str, *, stored: bool = False) -> Grant:
    """Parse a grant. Raises BadRequestError.

    `stored`: it comes from a log or a checkpoint. Earlier releases accepted patterns that match no
    name, which are kept.
    """
    words, *rest = text.split(":")
    if len(rest) > 2:
        raise _wrong(text, "it has more than three parts; write RIGHTS:TOPIC:GROUP")
    rights: set[str] = set()
    for word in words.split(","):
        if word not in RIGHTS and word not in ROLES:
            known = ", ".join(dict.fromkeys([*sorted(RIGHTS), *ROLES]))
            raise _wrong(text, f"{word[:64]!a} is no right and no role; known are {known}")
        if rest and word in OF_BROKER:
            raise _wrong(text, f"{word} concerns the whole broker: grant it without a topic")
        rights |= ROLES.get(word, {word})
    namespace = topic = group = "*"
    if rest:
        rights -= OF_BROKER
        namespace, slash, topic = rest[0].rpartition("/")
        namespace = namespace if slash else DEFAULT_NAMESPACE
    if len(rest) == 2:
        group = rest[1]
    for part in (namespace, topic, group):
        if not 1 <= len(part) <= PATTERN_CHARS_MAX or not part.isprintable():
            raise _wrong(text, f"a pattern has 1 to {PATTERN_CHARS_MAX} characters, all printable")
        # Topics of camellia may have letters of every alphabet.
        odd = next((char for char in part if not (char.isalnum() or char in "._-*")), None)
        if odd is not None and not stored:
            raise _wrong(
                text,
                f"{odd!a} is in no name that a grant can name: a pattern has letters, digits, "
                "'.', '_', '-', and '*' for any text; give several grants for several patterns",
            )
    return Grant(frozenset(rights), namespace, topic, group)


def _wrong(text: str, why: str) -> BadRequestError:
    return BadRequestError(f"the grant {text[:100]!a} is not valid: {why}", field="grants")


class Permissions:
    """The decisions for one set of grants."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        self._decided: dict[tuple[str, TopicKey, str | None], bool] = {}

    def may(self, right: str, key: TopicKey, group: str | None = None) -> bool:
        """Whether the grants allow `right` on a group of a topic; None = on all its groups.

        A send has no group: each group of the topic gets the message.
        """
        asked = (right, key, group)
        known = self._decided.get(asked)
        if known is None:
            known = any(
                grant.holds_for(key) and (right == "send" or grant.holds_for_group(group))
                for grant in self._grants_with(right)
            )
            if len(self._decided) >= _DECISIONS_KEPT:
                self._decided.clear()
            if len(key[1]) <= _KEPT_CHARS_MAX:
                self._decided[asked] = known
        return known

    def name(self, key: TopicKey) -> bool:
        """Whether a grant names the topic, for whichever right."""
        return any(grant.holds_for(key) for grant in self.grants)

    def may_in_some_group(self, right: str, key: TopicKey) -> bool:
        """Whether the grants allow `right` on at least one group of a topic."""
        return any(grant.holds_for(key) for grant in self._grants_with(right))

    def may_somewhere(self, right: str) -> bool:
        """Whether the grants allow `right` at all."""
        return any(self._grants_with(right))

    def may_everywhere(self, right: str) -> bool:
        """Whether the grants allow `right` on every topic and group."""
        return any(grant.is_unlimited for grant in self._grants_with(right))

    def _grants_with(self, right: str) -> Iterable[Grant]:
        return (grant for grant in self.grants if right in grant.rights)


ALL: Final = Permissions([Grant(RIGHTS)])
"""Every right, where no authentication is required."""
