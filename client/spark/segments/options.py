"""Options of the format `delaylog-segments`. Names are case-insensitive, values are text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
    "pushFilters",
)
_FLAGS: Final = {"true": True, "false": False}
_PARTITIONS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """What is read, and how."""

    path: str
    wanted: Wanted
    text: bool
    """With client-chosen ids, keys, tags and headers."""
    body: bool
    moved: bool
    """Also the rows that a message has left: it lives in another one."""
    partitions: int
    skip_corrupt: bool
    push_filters: bool
    """Let Spark's filters narrow what is read; see source.py for why that has to be asked for."""
    columns: tuple[str, ...] | None
    """Only these: what is not asked for is not made. None = all."""


def parse_options(given: Mapping[str, str]) -> SegmentOptions:
    """Raises ValueError, which says what is allowed."""
    known = {name.lower(): name for name in KNOWN}
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise ValueError(f"unknown option {name!r}; there are {', '.join(KNOWN)}")
        options[known[name.lower()]] = value
    path = options.get("path", "")
    path = path.removeprefix("file://") if path.startswith("file:///") else path
    if not path:
        raise ValueError("the option path is missing: a broker's data folder, or a backup")
    wanted = Wanted()
    if "startHour" in options:
        wanted = wanted.hours(parse_hour(options["startHour"], "startHour"), wanted.hour_to)
    if "endHour" in options:
        wanted = wanted.hours(0, parse_hour(options["endHour"], "endHour"))
    for name in ("namespace", "topic", "group", "state"):
        if name in options:
            texts = [text.strip() for text in options[name].split(",")]
            wrong = sorted(set(texts) - set(STATES)) if name == "state" else []
            if wrong or not all(texts):
                raise ValueError(f"state must be of {', '.join(STATES)}, not {wrong or texts}")
            wanted = wanted.among(name, texts)
    body = _flag(options, "includeBody")
    corrupt = options.get("onCorrupt", "fail").lower()
    if corrupt not in ("fail", "skip"):
        raise ValueError(f"onCorrupt must be fail or skip, not {corrupt!r}")
    return SegmentOptions(
        path=os.path.abspath(path),
        wanted=wanted,
        text=body or _flag(options, "includeText"),
        body=body,
        moved=_flag(options, "includeMoved"),
        partitions=_count(options.get("numPartitions", str(os.cpu_count() or 1))),
        skip_corrupt=corrupt == "skip",
        push_filters=_flag(options, "pushFilters"),
        columns=_columns(options.get("columns")),
    )


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) != len(names):
        raise ValueError(f"columns names one twice: {text!r}")
    return names


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in _FLAGS:
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return _FLAGS[text]


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _PARTITIONS_MAX:
        raise ValueError(f"numPartitions must be 1 to {_PARTITIONS_MAX:,}, not {text!r}")
    return int(text)
