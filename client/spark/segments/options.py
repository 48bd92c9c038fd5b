"""Options of the format `delaylog-segments`. Names are case-insensitive, values are text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.options import Taker
from pyspark_delaylog.segments.wanted import STATES, Wanted, parse_hour

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
    wanted = Wanted()
    if (hour := take.text("startHour")) is not None:
        wanted = wanted.hours(parse_hour(hour, "startHour"), wanted.hour_to)
    if (hour := take.text("endHour")) is not None:
        wanted = wanted.hours(0, parse_hour(hour, "endHour"))
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
            wanted = wanted.among(name, texts)
    body = take.flag("includeBody")
    return SegmentOptions(
        path=os.path.abspath(path),
        wanted=wanted,
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
