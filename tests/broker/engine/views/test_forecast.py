"""The load to come against counting every message."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.views.counting import MINUTE_MS, Forecast
from delaylog.storage.layout import HOUR_MS, MessageState
from tests.effort import tries


def made(host: Any, *, minutes: int = 60, hours: int = 24) -> Forecast:
    topic = host.engine.topic("t")
    forecast = Forecast(host.engine.state, topic, host.now_ms, minutes=minutes, hours=hours)
    host.engine.run_inline(forecast.work())
    return forecast


def counts(slots: list[dict[str, int]]) -> dict[int, int]:
    return {slot["from_ms"]: slot["count"] for slot in slots if slot["count"]}


@pytest.mark.parametrize("seed", range(tries(4)))
def test_every_message_is_counted_once(host: Any, seed: int) -> None:
    """By minute and hour, whatever is in tail and files, moved, ended or due."""
    random = Random(seed)
    now = host.now_ms
    names: list[str] = []
    for part in range(6):
        spans = [30_000, 10 * MINUTE_MS, 2 * HOUR_MS, 60 * HOUR_MS]
        due = [now + random.randrange(random.choice(spans)) for _ in range(60)]
        names += host.ids_of(host.send(60, at=due))
        host.send(40, at=[now + random.randrange(HOUR_MS) for _ in range(40)], topic="other")
        if part in (1, 3):
            host.checkpoint()
    host.cancel(random.sample(names, 60))
    for name in random.sample(names, 40):
        host.reschedule([name], now + random.randrange(3 * HOUR_MS))
    host.advance(20_000)
    now = host.now_ms
    waiting = [
        int(found.row["deliver_at"])
        for found in host.find(names)
        if found is not None and found.state is MessageState.WAITING
    ]
    for minutes, hours in ((60, 24), (120, 2), (0, 0), (3, 100)):
        forecast = made(host, minutes=minutes, hours=hours)
        for slots, length, n in (
            (forecast.minutes, MINUTE_MS, minutes),
            (forecast.hours, HOUR_MS, hours),
        ):
            first = now - now % length
            wanted: dict[int, int] = {}
            for moment in waiting:
                start = moment - moment % length
                if start < first + n * length:
                    wanted[start] = wanted.get(start, 0) + 1
            assert len(slots) == n
            assert counts(slots) == wanted
        end = now - now % HOUR_MS + hours * HOUR_MS
        assert forecast.later == sum(moment >= end for moment in waiting)
