"""Why the archive cannot have the next hour yet: the reason, and from when, for a person.

Without it, a newcomer sees an archive of no hours, and cannot tell a fault from a matter of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep.archive import is_over
from delaylog.storage.layout import HOUR_MS, hour_name

TOPICS_A_SLICE: Final = 1_000
TOPICS_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class NextHour:
    """The first hour with messages that cannot be archived yet."""

    hour: int
    from_ms: int | None
    """The earliest time at which it can be; None if living messages hold it."""
    why: str


def next_hour(state: EngineState, now_ms: int) -> Generator[None, None, NextHour | None]:
    """The next hour of the archive; None if no message is in an hour of the next day and a half."""
    near = state.hours.counts.near
    hours = (
        hour
        for hour in sorted(near)
        if near[hour].rows and (hour >= state.hour_floor or not is_over(near[hour], now_ms))
    )
    hour = next(hours, None)
    if hour is None:
        return None
    counts = near[hour]
    over_ms = (hour + 2) * HOUR_MS
    if hour >= state.hour_floor:
        # Checkpoints raise the floor, half a minute after the end of the next hour at most.
        why = "an hour takes messages until an hour after its end"
        return NextHour(hour, max(over_ms, counts.keep_until_ms), why)
    living: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    for at, topic in enumerate(list(state.by_number.values())):
        name = topic.name if topic.namespace == "default" else f"{topic.namespace}/{topic.name}"
        for group in topic.groups.values():
            living[name] += group.hours.get(hour, 0) + group.guests.get(hour, 0)
            dead[name] += group.counts.dead if topic.last_hour >= hour else 0
        if at % TOPICS_A_SLICE == TOPICS_A_SLICE - 1:
            yield
    if counts.ended:
        until = datetime.fromtimestamp(counts.keep_until_ms / 1000, UTC)
        why = f"messages in it stay readable until {until:%Y-%m-%dT%H:%M:%SZ}, by ended_keep_ms"
        if +dead:
            why += (
                f" or, for dead letters, dead_keep_ms: topics with dead letters are {_some(dead)}"
            )
        return NextHour(hour, counts.keep_until_ms, why)
    return NextHour(hour, None, f"living messages of it are in topics {_some(living)}")


def _some(counts: Counter[str]) -> str:
    """The largest ones, with their counts."""
    there = (+counts).most_common(TOPICS_NAMED_MAX)
    rest = len(+counts) - len(there)
    names = ", ".join(f"{name} ({count})" for name, count in there)
    return f"{names} and {rest} more" if rest else names


def members(found: NextHour | None) -> dict[str, str | int | None] | None:
    """For an answer."""
    if found is None:
        return None
    return {"hour": hour_name(found.hour), "from_ms": found.from_ms, "why": found.why}
