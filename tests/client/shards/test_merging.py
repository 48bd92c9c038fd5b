"""A forecast over shards: sums by slot, and the least that any shard has counted."""

from __future__ import annotations

from typing import Any

from delaylog.client.models import Forecast, ForecastSlot
from delaylog.client.shards.answers import merged_forecast

OLD: dict[str, Any] = {
    "topic": "t",
    "now_ms": 5,
    "minutes": [{"from_ms": 0, "count": 1}],
    "hours": [],
    "later": 2,
}


def shape(from_ms: int, until_ms: int, *, left: bool) -> dict[str, Any]:
    """What a shard with three schedules answers."""
    slots = [{"from_ms": from_ms, "count": 1, "firings": 4}]
    counted = {"schedules": 3, "schedules_left": left, "firings_until_ms": until_ms}
    return {"topic": "t", "now_ms": 5, "minutes": slots, "hours": slots, "later": 2, **counted}


def test_firings_are_summed_by_slot() -> None:
    merged = merged_forecast([shape(0, 90, left=False), shape(0, 70, left=True)])
    assert merged.minutes == merged.hours == (ForecastSlot(0, 2, 8),)
    assert (merged.schedules, merged.schedules_left, merged.firings_until_ms) == (6, True, 70)
    assert merged_forecast([shape(0, 90, left=False), shape(60, 90, left=False)]).minutes == (
        ForecastSlot(0, 1, 4),
        ForecastSlot(60, 1, 4),
    )


def test_a_broker_without_schedules_has_none() -> None:
    assert Forecast.of(OLD).minutes == (ForecastSlot(0, 1, 0),)
    merged = merged_forecast([OLD, OLD])
    assert (merged.later, merged.schedules, merged.firings_until_ms) == (4, 0, None)
    assert merged_forecast([OLD, shape(0, 90, left=False)]).firings_until_ms == 90
