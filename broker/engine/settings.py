"""Settings of a topic: what they are, their bounds, and how they are read from a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.layout import Int64Array
from delaylog.storage.message_fields import MERGE_MODES

ORDERS: Final = ("time", "priority")
MERGE_LEASED: Final = ("keep", "successor")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait before a retry: first * factor^(n-1), at most max, jittered by up to that share."""

    first_ms: int = 1_000
    max_ms: int = 300_000
    factor: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, attempts: Int64Array, uniform: Any) -> Int64Array:
        """Delays for rows that have had so many attempts; `uniform` is n numbers in [0, 1)."""
        if self.first_ms == 0:
            return np.zeros(len(attempts), np.int64)
        return delays_ms(
            attempts, uniform, self.first_ms, self.max_ms, self.factor, jitter=self.jitter
        )


def delays_ms(
    attempts: Int64Array, uniform: Any, first_ms: Any, max_ms: Any, factor: Any, *, jitter: Any
) -> Int64Array:
    """Delays of a backoff, or of one a row: at least 1 ms."""
    power = np.minimum(np.maximum(attempts - 1, 0), 63)
    base = np.minimum(first_ms * np.power(factor, power), max_ms)
    out: Int64Array = (base * (1 - jitter * uniform)).astype(np.int64)
    return np.maximum(out, 1)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Deliveries of each group: so many a second, so many at once after a pause."""

    per_second: float = 1.0
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Quota:
    """What a topic may take; 0 = as much as it likes."""

    rate: int = 0
    """Messages a second, over ten seconds."""
    pending: int = 0
    """Living messages."""
    bytes: int = 0
    """Bytes of living messages, by the mean size of all that were sent."""
    horizon_ms: int = 0
    """How far ahead."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic may say for its messages; the server's table gives the defaults."""

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
        """Plain members, as they stand in frames and answers."""
        return asdict(self)

    def succeeds_leased(self, merge: str) -> bool:
        """Whether a message whose id is under lease is kept for after that one."""
        if self.merge_leased is None:
            return merge == "replace"
        return self.merge_leased == "successor"

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> TopicSettings:
        """Settings from members that `parse_settings` checked (or a frame holds).

        Equal ones are one object: of many topics nearly all have the same.
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
"""Settings by the packed members they were made from."""
_KNOWN_MAX: Final = 4_096
_OBJECTS: Final[dict[str, Callable[..., Any]]] = {
    "backoff": Backoff,
    "rate_limit": RateLimit,
    "quota": Quota,
}
SETTING_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "aging_ms": (0, 86_400_000),
    "ttl_ms": (-1, 2**53),
    "max_retry": (0, 65_534),
    "lease_ms": (1, 43_200_000),
    "ended_keep_ms": (0, 86_400_000),
    "dead_keep_ms": (0, 90 * 86_400_000),
}
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "order": ORDERS,
    "merge": tuple(MERGE_MODES),
    "merge_leased": MERGE_LEASED,
}
FLAGS: Final = frozenset({"default_group", "dead_expired"})
OPTIONAL: Final = frozenset({"merge_leased", "rate_limit", "quota"})
"""Settings that may be null."""
SLOTS: Final = tuple(1 << power for power in range(15))
OBJECT_BOUNDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "backoff": {
        "first_ms": (0, 86_400_000),
        "max_ms": (0, 30 * 86_400_000),
        "factor": (1, 100),
        "jitter": (0, 1),
    },
    "rate_limit": {"per_second": (0.001, 1e9), "burst": (1, 1_000_000)},
    "quota": {
        "rate": (0, 10**9),
        "pending": (0, 2**53),
        "bytes": (0, 2**53),
        "horizon_ms": (0, 2**53),
    },
}
FRACTIONS: Final = frozenset({"factor", "jitter", "per_second"})
"""Members that need not be whole numbers."""


def parse_settings(members: Any) -> TopicSettings:
    """Settings of a PUT body; absent members take the server's defaults."""
    if not isinstance(members, dict):
        raise BadRequestError("topic settings must be an object")
    known = {f.name for f in fields(TopicSettings)}
    values: dict[str, Any] = {}
    for name, value in members.items():
        if name not in known:
            raise BadRequestError(
                f"unknown setting {name!r}; known are {sorted(known)}", field=str(name)[:64]
            )
        if value is None and name in OPTIONAL:
            continue
        values[name] = _parse(name, value)
    return TopicSettings(**values)


def _parse(name: str, value: Any) -> Any:
    if name in CHOICES:
        # A list is no member of a tuple of texts, but asking a set for it would raise.
        if value not in CHOICES[name]:
            raise BadRequestError(f"{name} must be one of {', '.join(CHOICES[name])}", field=name)
        return value
    if name in OBJECT_BOUNDS:
        return _parse_object(name, value)
    if name in FLAGS:
        if not isinstance(value, bool):
            raise BadRequestError(f"{name} must be true or false", field=name)
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name == "slots":
        if not whole or value not in SLOTS:
            raise BadRequestError(f"slots must be a power of two up to {SLOTS[-1]}", field=name)
        return value
    low, high = SETTING_BOUNDS[name]
    if not whole or not low <= value <= high:
        raise BadRequestError(f"{name} must be an integer from {low} to {high}", field=name)
    return value


def _parse_object(name: str, value: Any) -> Any:
    bounds = OBJECT_BOUNDS[name]
    if not isinstance(value, dict) or not set(value) <= bounds.keys():
        raise BadRequestError(f"{name} must be an object of {', '.join(bounds)}", field=name)
    for member, number in value.items():
        low, high = bounds[member]
        kinds = (int, float) if member in FRACTIONS else (int,)
        if not isinstance(number, kinds) or isinstance(number, bool) or not low <= number <= high:
            raise BadRequestError(f"{name}.{member} must lie from {low} to {high}", field=name)
    return _OBJECTS[name](**value)
