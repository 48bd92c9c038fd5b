"""The overview against the messages that were sent: sums, and the load by minute, hour, second."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from delaylog.broker.engine.views.overview import _GROUPS, BEHIND_GROUPS, BUSIEST_SECONDS, Overview

MINUTE, HOUR = 60_000, 3_600_000


def overview(host: Any, minutes: int = 120, hours: int = 48, **how: Any) -> Overview:
    """The finished overview."""
    found = Overview(host.engine.state, host.now_ms, minutes=minutes, hours=hours, **how)
    host.engine.run_inline(found.work())
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


def most_ready(found: Overview) -> list[tuple[int, str, str]]:
    return [(ready, topic.name, group.name) for ready, topic, group in found.behind]


def topics_that_are_behind(host: Any) -> None:
    """The first by one message, the next by two, and so on; more than are named."""
    for k in range(BEHIND_GROUPS + 3):
        host.topic_name = f"t{k}"
        host.send(k + 1, delay=[10] * (k + 1))
    host.advance(1_000)


def test_topics_that_are_behind_come_first(host: Any) -> None:
    topics_that_are_behind(host)
    found = overview(host)
    most = [(k + 1, f"t{k}", "default") for k in range(BEHIND_GROUPS + 2, 2, -1)]
    assert most_ready(found) == most
    assert found.ready == sum(range(1, BEHIND_GROUPS + 4))


def test_each_group_that_is_behind_is_named(host: Any) -> None:
    """Also of a topic whose default group has nothing ready; sums count each message once."""
    host.send(1, delay=[10])
    host.put_group("audit")
    host.put_group("idle")
    host.send(6, delay=[10] * 6)
    host.advance(1_000)
    host.ack(host.receive(7, group="idle"))
    host.ack(host.receive(7))
    found = overview(host)
    assert most_ready(found) == [(6, host.topic_name, "audit")]
    assert found.ready == 0
    host.drop_group("audit")
    assert overview(host).behind == []


def test_topics_that_are_not_shown_take_no_place(host: Any) -> None:
    topics_that_are_behind(host)
    found = overview(host, shown=lambda topic: topic.name == "t0")
    assert most_ready(found) == [(1, "t0", "default")]


def test_many_groups_are_summed_up_in_slices(host: Any) -> None:
    """A topic with many groups ends a slice: 200 of them would be 100 ms otherwise."""
    for k in range(3):
        host.topic_name = f"t{k}"
        host.send(1, delay=[HOUR])
        for number in range(_GROUPS):
            host.put_group(f"g{number}")
    work = Overview(host.engine.state, host.now_ms, minutes=0, hours=0)
    assert len(list(work.work())) == 4
    assert work.topics == 3


def test_nothing_is_there(host: Any) -> None:
    found = overview(host, minutes=0, hours=0)
    assert (found.minutes, found.hours, found.seconds, found.behind) == ([], [], [], [])
    assert overview(host).later == 0
