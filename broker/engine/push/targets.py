"""The table of push targets: at most one for each group, and what is known of its health.

A target is configuration, and replaced as a whole. Its health is what pushes have learned: it
survives restarts and changes of the leader, so that a disabled target stays disabled, and a broken
one gets no flood of attempts from a new leader.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

import msgpack

GroupKey: TypeAlias = "tuple[int, int]"
"""Numbers of a topic and of a group in it."""
BY_OPERATOR: Final = "operator"
"""`Health.disabled` of a target that an operator has disabled."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how the messages of a group are pushed."""

    url: str
    secrets: tuple[str, ...] = field(repr=False)
    """They sign the pushes, the newest first; never shown."""
    mode: str = "binary"
    timeout_ms: int = 15_000
    concurrency: int = 10
    """Attempts that may be in flight."""
    per_second: float | None = None
    """Attempts that may begin in a second; None: any number."""

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> Target:
        """A target of a frame or a checkpoint."""
        values: dict[str, Any] = {**members, "secrets": tuple(members["secrets"])}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a target."""

    disabled: str = ""
    """Why nothing is sent until an operator enables the target; empty: it is enabled."""
    open_until_ms: int = 0
    """End of the breaker's pause, Unix ms; 0: the breaker is closed."""
    turns: int = 0
    """Pauses in a row: the length of the next one."""
    throttled_until_ms: int = 0
    """No attempt begins before it, Unix ms."""
    failing_since_ms: int = 0
    """Time of the first failed attempt after the last success, Unix ms; 0: none failed."""
    reason: str = ""
    """Why the last attempt failed that said something of the target; empty: none has failed since
    the last success."""

    @property
    def blocks(self) -> bool:
        """Whether messages wait for the target rather than for the pushes."""
        return bool(self.disabled or self.open_until_ms or self.throttled_until_ms)

    def as_dict(self) -> dict[str, Any]:
        """Plain members, as frames and answers contain them."""
        return asdict(self)

    def state(self, now_ms: int) -> str:
        """disabled, open, half-open, throttled or closed."""
        if self.disabled:
            return "disabled"
        if self.open_until_ms:
            return "open" if now_ms < self.open_until_ms else "half-open"
        return "throttled" if now_ms < self.throttled_until_ms else "closed"


WELL: Final = Health()


class TargetTable:
    """All targets of a broker, by the numbers of topic and group."""

    def __init__(self) -> None:
        self.targets: dict[GroupKey, Target] = {}
        self.healths: dict[GroupKey, Health] = {}
        self._packed: dict[GroupKey, bytes] = {}
        """Each as a checkpoint stores it."""
        self.changes = 0
        """Number of changes to targets in this process; not state."""

    def apply(self, members: dict[str, Any]) -> None:
        """Do what a TARGET frame says."""
        key = (members["topic"], members["group"])
        if "target" in members:
            self.changes += 1
            if members["target"] is None:
                self.drop(*key)
                return
            self.targets[key] = Target.from_dict(members["target"])
        target = self.targets.get(key)
        if target is not None:
            health = self.healths[key] = Health(**members["health"])
            parts = {"target": asdict(target), "health": health.as_dict()}
            self._packed[key] = msgpack.packb({"topic": key[0], "group": key[1], **parts})

    def drop(self, topic: int, group: int) -> None:
        """A group is gone, or its target."""
        if self.targets.pop((topic, group), None) is not None:
            del self.healths[topic, group], self._packed[topic, group]
            self.changes += 1

    def snapshot(self) -> list[bytes]:
        """All targets, for a checkpoint."""
        return list(self._packed.values())

    def restore(self, saved: list[bytes]) -> None:
        """Fill an empty table from a checkpoint."""
        for packed in saved:
            self.apply(msgpack.unpackb(packed))
