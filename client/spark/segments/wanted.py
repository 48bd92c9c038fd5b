"""The selection of rows: by options, and by filters that Spark pushes down.

A folder stores milliseconds and Spark uses microseconds, so bounds are rounded to the equivalent
millisecond. Spark need not check the filters again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from delaylog.storage.layout import HOUR_MAX, HOUR_MS, NEVER_MS, hour_of_name
from pyspark_delaylog.errors import OptionError

STATES: Final = (
    "waiting",
    "ready",
    "leased",
    "acked",
    "expired",
    "dead",
    "cancelled",
    "replaced",
    "moved",
    "damaged",
)
"""The values of the column `state`; the code of a state is its index."""
_TEXTS: Final = {"topic": "topics", "namespace": "namespaces", "group": "groups", "state": "states"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of(value: datetime) -> int:
    """Exact microseconds since 1970."""
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def parse_hour(text: str, name: str) -> int:
    """Parse an hour: the name of a folder (2026-01-31T07Z) or an ISO time (default UTC).

    Raises OptionError, which names the option `name`.
    """
    hour = hour_of_name(text)
    if hour is not None:
        return hour
    try:
        when = datetime.fromisoformat(re.sub(r"(T\d\d)(Z?)$", r"\1:00\2", text.strip()))
    except ValueError:
        raise OptionError(
            f"{name} must be an hour as 2026-01-31T07Z or an ISO time, not {text!r}"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return micros_of(when) // (HOUR_MS * 1000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Half-open ranges and sets; None for all."""

    hour_from: int = 0
    hour_to: int = HOUR_MAX + 1
    due_from_ms: int = -NEVER_MS
    due_to_ms: int = NEVER_MS
    topics: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    states: frozenset[str] | None = None

    def due(self, from_ms: int, to_ms: int) -> Wanted:
        """Restrict to rows due in [from, to)."""
        return replace(
            self,
            due_from_ms=max(self.due_from_ms, from_ms),
            due_to_ms=min(self.due_to_ms, to_ms),
        )

    def hours(self, first: int, end: int) -> Wanted:
        """Restrict to hours in [first, end)."""
        return replace(self, hour_from=max(self.hour_from, first), hour_to=min(self.hour_to, end))

    def among(self, column: str, values: Iterable[str]) -> Wanted:
        """Restrict to rows whose column has one of these values."""
        name = _TEXTS[column]
        known: frozenset[str] | None = getattr(self, name)
        found = frozenset(values)
        narrowed: dict[str, Any] = {name: found if known is None else known & found}
        return replace(self, **narrowed)

    def narrowed(self, column: str, relation: str, value: Any) -> Wanted | None:
        """Apply a filter of Spark (`relation` is its class); None if it is unsupported."""
        if column in _TEXTS:
            if relation == "EqualTo" and isinstance(value, str):
                return self.among(column, [value])
            if relation == "In" and all(isinstance(each, str) for each in value):
                return self.among(column, value)
            return None
        if column not in ("hour", "deliver_at"):
            return None
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        bounds = _milliseconds(relation, micros_of(value))
        if bounds is None:
            return None
        if column == "deliver_at":
            return self.due(*bounds)
        first, end = (-(-bound // HOUR_MS) for bound in bounds)
        return self.hours(first, end)

    @property
    def takes_damaged(self) -> bool:
        """Whether damaged rows, of which only the hour is known, can match."""
        texts = (self.topics, self.namespaces, self.groups)
        any_due = (self.due_from_ms, self.due_to_ms) == (-NEVER_MS, NEVER_MS)
        return (
            all(each is None for each in texts)
            and any_due
            and (self.states is None or "damaged" in self.states)
        )


def _milliseconds(relation: str, micros: int) -> tuple[int, int] | None:
    """The half-open range of milliseconds that have this relation to a time."""
    floor, ceiling = micros // 1000, -(-micros // 1000)
    return {
        "EqualTo": (ceiling, floor + 1),
        "GreaterThan": (floor + 1, NEVER_MS),
        "GreaterThanOrEqual": (ceiling, NEVER_MS),
        "LessThan": (-NEVER_MS, ceiling),
        "LessThanOrEqual": (-NEVER_MS, floor + 1),
    }.get(relation)
