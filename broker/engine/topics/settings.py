"""Settings of a topic: types and defaults, and how a request is parsed.

`SETTINGS` of `contract/calls` declares names, bounds and documentation; `TopicSettings` is what the
engine uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.contract.calls.shapes import SETTINGS
from delaylog.contract.members import MemberError
from delaylog.storage.layout import Int64Array


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait before retry n: first * factor^(n-1), at most max, less a random share up to jitter."""

    first_ms: int = 1_000
    max_ms: int = 300_000
    factor: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, attempts: Int64Array, uniform: Any) -> Int64Array:
        """Delays of rows by their count of attempts; `uniform` has a number in [0, 1) for each."""
        if self.first_ms == 0:
            return np.zeros(len(attempts), np.int64)
        return delays_ms(
            attempts, uniform, self.first_ms, self.max_ms, self.factor, jitter=self.jitter
        )


def delays_ms(
    attempts: Int64Array, uniform: Any, first_ms: Any, max_ms: Any, factor: Any, *, jitter: Any
) -> Int64Array:
    """Delays, at least 1 ms, of one backoff or of a backoff for each row."""
    power = np.minimum(np.maximum(attempts - 1, 0), 63)
    base = np.minimum(first_ms * np.power(factor, power), max_ms)
    out: Int64Array = (base * (1 - jitter * uniform)).astype(np.int64)
    return np.maximum(out, 1)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket for the deliveries of each group."""

    per_second: float = 1.0
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits on what a topic accepts; 0 = no limit."""

    rate: int = 0
    """Messages a second, over ten seconds."""
    pending: int = 0
    """Living messages."""
    bytes: int = 0
    """Bytes of living messages, by the mean size of all that were sent."""
    horizon_ms: int = 0
    """How far ahead of now a message may be due."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, with their defaults."""

    order: str = "time"
    aging_ms: int = 0
    merge: str = "keep"
    merge_leased: str | None = None
    """None: keep with merge=keep and reject, successor with merge=replace."""
    ttl_ms: int = -1
    max_retry: int = 10
    lease_ms: int = 30_000
    ended_keep_ms: int = 300_000
    dead_keep_ms: int = 7 * 86_400_000
    dead_expired: bool = False
    """Messages that expired without a delivery go to the dead letters too."""
    backoff: Backoff = field(default_factory=Backoff)
    rate_limit: RateLimit | None = None
    quota: Quota | None = None
    slots: int = 1
    default_group: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain members, as frames and answers contain them."""
        return asdict(self)

    def changed(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as members of a request, with changes.

        Members of an object, such as `backoff`, that the change does not name stay as they are.
        """
        values = self.as_dict()
        for name, value in members.items():
            before = values.get(name)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                value = {**before, **value}
            values[name] = value
        return values

    def succeeds_leased(self, merge: str) -> bool:
        """Whether a new message with the id of a leased message becomes its successor."""
        if self.merge_leased is None:
            return merge == "replace"
        return self.merge_leased == "successor"

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> TopicSettings:
        """Settings from members that `parse_settings` has checked, or that a frame contains.

        Equal settings share one object, since most topics have the same.
        """
        key = msgpack.packb(members)
        known = _KNOWN.get(key)
        if known is None:
            if len(_KNOWN) >= _KNOWN_MAX:
                _KNOWN.clear()
            known = _KNOWN[key] = cls._made(members)
        return known

    @classmethod
    def _made(cls, members: dict[str, Any]) -> TopicSettings:
        values = dict(members)
        for name, kind in _OBJECTS.items():
            if values.get(name) is not None:
                values[name] = kind(**values[name])
        return cls(**values)


_KNOWN: Final[dict[bytes, TopicSettings]] = {}
"""Settings by the packed members they were created from."""
_KNOWN_MAX: Final = 4_096
_OBJECTS: Final[dict[str, Callable[..., Any]]] = {
    "backoff": Backoff,
    "rate_limit": RateLimit,
    "quota": Quota,
}
assert SETTINGS.names == {each.name for each in fields(TopicSettings)}


def parse_settings(members: Any) -> TopicSettings:
    """Settings of a PUT body; absent members take the server's defaults. Raises MemberError."""
    given = SETTINGS.check(members)
    values = {}
    for member in SETTINGS.members:
        if given.get(member.name) is None:
            continue
        try:
            values[member.name] = member.take(given)
        except MemberError as error:
            # The error names the setting, also where a member of an object in it is wrong.
            raise type(error)(str(error), field=member.name) from None
    return TopicSettings.from_dict(values)
