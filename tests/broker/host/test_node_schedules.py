"""Schedules on a running node: a real clock fires them, and a stop loses no instant."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from delaylog.broker.engine.deliver import receives, settlements
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.schedules.commands import pause_schedule, put_schedule, the_schedule
from tests.broker.host.running_node import RunningNode, running
from tests.broker.rules.schedules.test_instants import zones_without

STEP_MS = 50


def put(it: RunningNode, name: str, **members: object) -> None:
    """As a call would."""
    now_ms = it.clock.now_ms()
    topic = it.engine.make_topic("t", now_ms)
    put_schedule(it.engine.state, topic, name, members, b"x", now_ms)
    it.node.appended()


def received(it: RunningNode) -> list[int]:
    """Due times of all ready messages, by how late each is received; they are acked."""
    state, now_ms = it.engine.state, it.clock.now_ms()
    topic = it.engine.make_topic("t", now_ms)
    request = ReceiveRequest(count_max=1_000, now_ms=now_ms, begin=[None], consumers=[""])
    delivery = receives.receive(state, topic, topic.default, request, lease_ms=60_000)
    if delivery is None:
        return []
    receipts = settlements.Receipts(delivery.lease, delivery.origins.astype(np.int64))
    settlements.ack(state, topic, receipts, now_ms)
    it.node.appended()
    due: list[int] = delivery.rows["deliver_at"].tolist()
    assert max(due) <= now_ms, "no firing is early"
    return due


async def test_the_clock_fires_each_instant_of_two_lives(tmp_path: Path) -> None:
    """Twenty firings a second, over a stop and a start, each once and at its instant."""
    dues: list[int] = []
    for life in range(2):
        async with running(tmp_path / "folder") as it:
            if life == 0:
                put(it, "s", interval_ms=STEP_MS)
            wanted = len(dues) + 30

            def enough(it: RunningNode = it, wanted: int = wanted) -> bool:
                dues.extend(received(it))
                return len(dues) >= wanted

            await it.until(enough)
    async with running(tmp_path / "folder") as it:
        topic = it.engine.make_topic("t", it.clock.now_ms())
        one = the_schedule(it.engine.state, topic, "s")
        pause_schedule(it.engine.state, one, "enough", it.clock.now_ms())
        it.node.appended()
        await it.until(lambda: bool(dues.extend(received(it))) or topic.default.counts.living == 0)
        progress = the_schedule(it.engine.state, topic, "s").progress
    assert len(dues) == progress.n
    start_ms = progress.fired_ms - (progress.n - 1) * STEP_MS
    # What fired late has the time of its frame. After the start it may come before an older one
    # that is still read from the disk.
    dues.sort()
    assert all(due >= start_ms + k * STEP_MS for k, due in enumerate(dues))


async def test_a_zone_that_the_release_lacks_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two schedules need it. The node lives on, and fires another one."""
    async with running(tmp_path / "folder") as it:
        for name in ("a", "b"):
            put(it, name, cron="* * * * * *", zone="Europe/Berlin")
        with caplog.at_level(logging.WARNING, "delaylog.node"):
            it.engine.schedules._zones = zones_without("Europe/Berlin")
            it.engine.schedules.start(it.clock.now_ms())
            await it.until(lambda: bool(caplog.records))
            put(it, "s", interval_ms=STEP_MS)
            await it.until(lambda: bool(received(it)))
    (record,) = [each for each in caplog.records if "tzdata" in each.getMessage()]
    assert "tzdata 2099a of this broker has no zone 'Europe/Berlin'" in record.getMessage()
