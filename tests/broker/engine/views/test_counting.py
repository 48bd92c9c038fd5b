"""Counts of waiting messages, and the load to come, against counting every message."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.views.counts import (
    BORDERS_MS,
    MINUTE_MS,
    STRETCHES,
    Forecast,
    WaitingCounts,
)
from delaylog.storage.layout import HOUR_MS, MessageState
from tests.effort import tries

STARTS = [0, *BORDERS_MS]
ENDS = [*BORDERS_MS, 10**15]


def counted(host: Any, only: Any = None) -> WaitingCounts:
    counts = WaitingCounts(host.engine.state, host.now_ms, only)
    host.engine.run_inline(counts.work())
    return counts


def expected(due: list[int], now_ms: int) -> list[int]:
    """Both borders of a stretch belong to it; what is due does not wait."""
    ahead = [moment - now_ms for moment in due if moment > now_ms]
    return [
        sum(low <= left <= high for left in ahead) for low, high in zip(STARTS, ENDS, strict=True)
    ]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("seed", range(tries(4)))
def test_counts_are_those_of_every_message(host: Any, seed: int, flushed: bool) -> None:
    random = Random(seed)
    now = host.now_ms
    due: dict[str, dict[int, int]] = {"a": {}, "b": {}, "c": {}}
    for name, kept in due.items():
        moments = [now + border + by for border in BORDERS_MS for by in (-1, 0, 1)]
        moments += [now + random.randrange(1, 40 * 24 * HOUR_MS) for _ in range(60)]
        moments += [now + random.randrange(1, 2 * HOUR_MS) for _ in range(60)]
        for moment in moments:
            kept[int(host.send(1, at=moment, topic=name).refs[0])] = moment
    if flushed:
        host.checkpoint()
    for name, kept in due.items():
        topic = host.engine.topic(name)
        for ref in random.sample(sorted(kept), 40):
            found = find_origins(host.engine.state, np.array([ref]), topic, now)
            if random.random() < 0.5:
                changes.cancel(host.engine.state, topic, found, now)
                del kept[ref]
            else:
                moment = now + random.randrange(1, 9 * HOUR_MS)
                changes.reschedule(host.engine.state, topic, found, now, deliver_at_ms=moment)
                kept[ref] = moment
    counts = counted(host)
    for name, kept in due.items():
        topic = host.engine.topic(name)
        wanted = expected(list(kept.values()), now)
        assert counts.of(topic) == wanted
        assert counts.total(topic) == len(kept)
        assert counted(host, topic).of(topic) == wanted
        assert sum(topic.default.hours.values()) == topic.default.counts.living == len(kept)


def test_what_is_due_or_was_handed_out_does_not_wait(host: Any) -> None:
    host.send(5, delay=1_000, topic="a")
    host.send(3, delay=30_000, topic="a")
    host.advance(5_000)
    topic = host.engine.topic("a")
    assert counted(host).of(topic) == [3, *[0] * (STRETCHES - 1)]


def test_numbers_per_hour_come_back_after_a_restart(host: Any) -> None:
    for hours in (0, 1, 1, 5, 700):
        host.send(1, delay=hours * HOUR_MS + 1, topic="a")
    before = dict(host.engine.topic("a").default.hours)
    host.checkpoint()
    host.send(1, delay=5 * HOUR_MS, topic="a")
    host.crash()
    hour = host.now_ms // HOUR_MS + 5
    assert host.engine.topic("a").default.hours == {**before, hour: before[hour] + 1}
    assert counted(host).total(host.engine.topic("a")) == 6


def test_what_a_purge_ended_does_not_wait(host: Any) -> None:
    host.send(5, delay=30_000)
    host.purge("default", force=False)
    host.send(2, delay=30_000)
    assert counted(host).of(host.topic)[0] == 2


def made(host: Any, *, minutes: int = 60, hours: int = 24) -> Forecast:
    topic = host.engine.topic("t")
    forecast = Forecast(host.engine.state, topic, host.now_ms, minutes=minutes, hours=hours)
    host.engine.run_inline(forecast.work())
    return forecast


def by_start(slots: list[dict[str, int]]) -> dict[int, int]:
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
            assert by_start(slots) == wanted
        end = now - now % HOUR_MS + hours * HOUR_MS
        assert forecast.later == sum(moment >= end for moment in waiting)
