"""The overview against the messages that were sent: sums, and the load by minute, hour, second."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from delaylog.broker.engine.views.overview import BEHIND_TOPICS, BUSIEST_SECONDS, Overview

MINUTE, HOUR = 60_000, 3_600_000


def overview(host: Any, minutes: int = 120, hours: int = 48) -> Overview:
    """The finished overview."""
    found = Overview(host.engine.state, host.now_ms, minutes=minutes, hours=hours)
    for step in found.work():
        if callable(step):
            step()
    return found


def filled(slots: list[dict[str, int]]) -> dict[int, int]:
    return {each["from_ms"]: each["count"] for each in slots if each["count"]}


@pytest.mark.parametrize("where", ["tail", "files", "both", "restarted"])
def test_the_load_to_come(host: Any, where: str) -> None:
    """Purpose: each message is in its minute, hour and second, wherever it is stored."""
    start = host.now_ms
    delays = [*range(1_000, 3 * HOUR, 97_000), *[5 * MINUTE + 7] * 9, 40 * HOUR, 100 * HOUR]
    half = len(delays) // 2 if where == "both" else len(delays)
    host.send(half, delay=delays[:half])
    if where in ("files", "both"):
        host.checkpoint()
    elif where == "restarted":
        host.restart()
    if half < len(delays):
        host.send(len(delays) - half, delay=delays[half:])
    dues = [start + each for each in delays]
    found = overview(host)
    first_minute, now_hour = host.now_ms - host.now_ms % MINUTE, host.now_ms // HOUR
    end = first_minute + 120 * MINUTE
    minutes = Counter(due - due % MINUTE for due in dues if due < end)
    assert filled(found.minutes) == minutes
    assert filled(found.hours) == Counter(
        due - due % HOUR for due in dues if due // HOUR < now_hour + 48
    )
    assert found.later == sum(due // HOUR >= now_hour + 48 for due in dues)
    seconds = Counter(due - due % 1_000 for due in dues if due < end)
    counts = [each["count"] for each in found.seconds]
    assert counts == sorted(seconds.values(), reverse=True)[:BUSIEST_SECONDS]
    assert all(seconds[each["from_ms"]] == each["count"] for each in found.seconds)
    assert (found.topics, found.living, found.ready) == (1, len(delays), 0)


def test_topics_that_are_behind_come_first(host: Any) -> None:
    for k in range(BEHIND_TOPICS + 3):
        host.topic_name = f"t{k}"
        host.send(k + 1, delay=[10] * (k + 1))
    host.advance(1_000)
    found = overview(host)
    most = [(k + 1, f"t{k}") for k in range(BEHIND_TOPICS + 2, 2, -1)]
    assert [(ready, topic.name) for ready, topic in found.behind] == most
    assert found.ready == sum(range(1, BEHIND_TOPICS + 4))


def test_nothing_is_there(host: Any) -> None:
    found = overview(host, minutes=0, hours=0)
    assert (found.minutes, found.hours, found.seconds, found.behind) == ([], [], [], [])
    assert overview(host).later == 0
