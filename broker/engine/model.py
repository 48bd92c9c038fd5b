"""Values of the engine: topics and their settings, results of calls, errors.

Everything here is plain data; what changes it is in the modules beside.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.groups import DEFAULT_GROUP, Group
from delaylog.storage.batch import MERGE_MODES
from delaylog.storage.layout import (
    STATE_ENTRY,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)

DEFAULT_NAMESPACE: Final = "default"


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
        power = np.minimum(np.maximum(attempts - 1, 0), 63)
        base = np.minimum(self.first_ms * np.power(self.factor, power), self.max_ms)
        out: Int64Array = (base * (1 - self.jitter * uniform)).astype(np.int64)
        return np.maximum(out, 1)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic may say for its messages; the server's table gives the defaults."""

    merge: str = "keep"
    ttl_ms: int = -1
    max_retry: int = 10
    lease_ms: int = 30_000
    ended_keep_ms: int = 300_000
    dead_keep_ms: int = 7 * 86_400_000
    backoff: Backoff = field(default_factory=Backoff)
    default_group: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain members, as they stand in frames and answers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> TopicSettings:
        """Settings from members that `parse_settings` checked (or a frame holds)."""
        values = dict(members)
        if "backoff" in values:
            values["backoff"] = Backoff(**values["backoff"])
        return cls(**values)


SETTING_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "ttl_ms": (-1, 2**53),
    "max_retry": (0, 65_534),
    "lease_ms": (1, 43_200_000),
    "ended_keep_ms": (0, 86_400_000),
    "dead_keep_ms": (0, 90 * 86_400_000),
}


BACKOFF_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "first_ms": (0, 86_400_000),
    "max_ms": (0, 30 * 86_400_000),
    "factor": (1, 100),
    "jitter": (0, 1),
}
"""Members that end in _ms are whole numbers."""


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
        if name == "merge":
            if value not in MERGE_MODES:
                raise BadRequestError(f"merge must be one of {', '.join(MERGE_MODES)}", field=name)
        elif name == "backoff":
            value = _parse_backoff(value)
        elif name == "default_group":
            if not isinstance(value, bool):
                raise BadRequestError("default_group must be true or false", field=name)
        else:
            low, high = SETTING_BOUNDS[name]
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise BadRequestError(f"{name} must be an integer from {low} to {high}", field=name)
        values[name] = value
    return TopicSettings(**values)


def _parse_backoff(value: Any) -> Backoff:
    if not isinstance(value, dict) or not set(value) <= {f.name for f in fields(Backoff)}:
        raise BadRequestError(
            "backoff must be an object of first_ms, max_ms, factor, jitter", field="backoff"
        )
    for name, number in value.items():
        low, high = BACKOFF_BOUNDS[name]
        whole = name.endswith("_ms")
        kinds = (int,) if whole else (int, float)
        if not isinstance(number, kinds) or isinstance(number, bool) or not low <= number <= high:
            raise BadRequestError(f"backoff.{name} must lie from {low} to {high}", field="backoff")
    return Backoff(**value)


@dataclass(slots=True)
class Activity:
    """What happened to a topic's messages by itself since somebody last took note.

    Not part of the state: no frame carries it and a restart begins with zeros.
    """

    released: int = 0
    """Messages that became ready at their time."""
    released_late_ms: int = 0
    """Sum of how late they did."""
    released_late_max_ms: int = 0
    timed_out: int = 0
    """Messages whose lease ended without a settle."""
    found_ended: int = 0
    """Messages found to be past their ttl or their retries."""

    def note_released(self, due_ms: Int64Array, now_ms: int) -> None:
        """Messages with these due times became ready."""
        self.released += len(due_ms)
        self.released_late_ms += now_ms * len(due_ms) - int(due_ms.sum())
        self.released_late_max_ms = max(self.released_late_max_ms, now_ms - int(due_ms.min()))


@dataclass(slots=True)
class Topic:
    """A topic: its number never changes and is never used again."""

    number: int
    namespace: str
    name: str
    settings: TopicSettings
    default: Group
    """The default group; it counts nothing while the topic has only named ones."""
    made: bool = False
    """Made by PUT (kept when empty) rather than by a first send."""
    paused: bool = False
    """Nothing is handed out."""
    sent: int = 0
    """Messages since the topic was made."""
    groups: dict[int, Group] = field(default_factory=dict)
    """The groups that see what is sent now, by number."""
    next_group: int = DEFAULT_GROUP + 1
    keep_until_ms: int = 0
    """Until when an ended message of it must stay readable."""
    activity: Activity = field(default_factory=Activity)

    @property
    def plain(self) -> bool:
        """Whether the default group is the only one, as it is in most topics."""
        return len(self.groups) == 1 and DEFAULT_GROUP in self.groups

    @property
    def living(self) -> int:
        """Living messages, counted once for each group that has to see them yet."""
        return sum(group.counts.living for group in self.groups.values())

    def group(self, name: str) -> Group | None:
        """The group of this name."""
        return next((group for group in self.groups.values() if group.name == name), None)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Per row: ref, due time, and 0 created, 1 kept, 2 replaced, 3 rejected."""

    refs: Int64Array
    deliver_at_ms: Int64Array
    results: Int64Array | int
    position: int
    """The log end this answer saw: it goes out when that is durable."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages handed out under one lease, in delivery order."""

    lease: int
    lease_until_ms: int
    origins: Int64Array
    rows: RowArray
    records: bytes
    attempts: Int64Array
    position: int

    @property
    def count(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of ack, nack or extend: how many done, which origins were gone."""

    done: int
    gone: Int64Array
    position: int


@dataclass(frozen=True, slots=True)
class Found:
    """A message found by id: where it is now and what it is."""

    origin: int
    ref: int
    row: Any
    entry: Any
    state: MessageState


def empty_refs() -> Int64Array:
    """No refs."""
    return np.zeros(0, np.int64)


def blank_entries(n: int) -> StateArray:
    """n zeroed state entries."""
    return np.zeros(n, STATE_ENTRY)
