"""The selection of rows by options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delaylog.storage.layout import HOUR_MAX, hour_of_name
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
    return (when - _EPOCH) // timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Half-open ranges and sets; None for all."""

    hour_from: int = 0
    hour_to: int = HOUR_MAX + 1
    topics: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    states: frozenset[str] | None = None

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

    @property
    def takes_damaged(self) -> bool:
        """Whether damaged rows, of which only the hour is known, can match."""
        texts = (self.topics, self.namespaces, self.groups)
        return all(each is None for each in texts) and (
            self.states is None or "damaged" in self.states
        )
