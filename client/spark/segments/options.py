"""Options of the format `delaylog-segments`, and the selection of rows by them.

Names are case-insensitive, values are text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delaylog.storage.layout import HOUR_MAX, hour_of_name
from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.options import Taker

# ------------------------------------------------------------------------ the selection of rows

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

    @property
    def takes_damaged(self) -> bool:
        """Whether damaged rows, of which only the hour is known, can match."""
        texts = (self.topics, self.namespaces, self.groups)
        return all(each is None for each in texts) and (
            self.states is None or "damaged" in self.states
        )


# -------------------------------------------------------------------------------------- options

KNOWN: Final = (
    "path",
    "startHour",
    "endHour",
    "namespace",
    "topic",
    "group",
    "state",
    "includeText",
    "includeBody",
    "includeMoved",
    "columns",
    "numPartitions",
    "onCorrupt",
)
NARROWING: Final = "topic, namespace, group, state, startHour and endHour"
_PARTITIONS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """The parsed options."""

    path: str
    wanted: Wanted
    text: bool
    """Whether to include ids chosen by senders, keys, tags and headers."""
    body: bool
    moved: bool
    """Whether to include the old rows of moved messages."""
    partitions: int
    skip_corrupt: bool
    columns: tuple[str, ...] | None
    """The selected columns; others are not built. None for all."""


def parse_options(given: Mapping[str, str]) -> SegmentOptions:
    """Parse options. Raises OptionError, a ValueError that says what is allowed."""
    known = {name.lower() for name in KNOWN}
    for name in given:
        if name.lower() == "pushfilters":
            raise OptionError(
                "option pushFilters: there is none, because Spark would use the filters of one "
                "query for the next one on the same DataFrame or view, which then misses rows; "
                f"narrow the table by the options {NARROWING}"
            )
        if name.lower() not in known:
            raise OptionError(f"unknown option {name!r}; there are {', '.join(KNOWN)}")
    take = Taker(given)
    path = take.text("path") or ""
    path = path.removeprefix("file://") if path.startswith("file:///") else path
    if not path:
        raise OptionError("the option path is missing: a broker's data folder, or a backup")
    narrowed: dict[str, Any] = {}
    if (hour := take.text("startHour")) is not None:
        narrowed["hour_from"] = max(parse_hour(hour, "startHour"), 0)
    if (hour := take.text("endHour")) is not None:
        narrowed["hour_to"] = min(parse_hour(hour, "endHour"), HOUR_MAX + 1)
    for name in ("namespace", "topic", "group", "state"):
        if (said := take.text(name)) is not None:
            texts = [text.strip() for text in said.split(",")]
            if not all(texts):
                raise OptionError(
                    f"{name} has an empty name: {said!r}; give one, or some with commas"
                )
            wrong = sorted(set(texts) - set(STATES)) if name == "state" else []
            if wrong:
                raise OptionError(f"state must be of {', '.join(STATES)}, not {', '.join(wrong)}")
            narrowed[f"{name}s"] = frozenset(texts)
    body = take.flag("includeBody")
    return SegmentOptions(
        path=os.path.abspath(path),
        wanted=Wanted(**narrowed),
        text=body or take.flag("includeText"),
        body=body,
        moved=take.flag("includeMoved"),
        partitions=take.whole("numPartitions", os.cpu_count() or 1, 1, _PARTITIONS_MAX),
        skip_corrupt=take.choice("onCorrupt", ("fail", "skip"), "fail") == "skip",
        columns=_columns(take.text("columns")),
    )


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) != len(names):
        raise OptionError(f"columns names one twice: {text!r}")
    return names
