"""A node that releases messages: who does not wait is shown all that is safe by now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.engine.deliver.dispatcher import RELEASE_MAX
from delaylog.broker.host.background import SLICE_SECONDS
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.waiters import GroupKey
from delaylog.storage.work import Work
from tests.broker.host.running_node import RunningNode, make_engine, running


async def test_what_was_synced_a_moment_ago_counts_for_who_does_not_wait(tmp_path: Path) -> None:
    """The log's thread is ahead of the loop, which is told a turn later."""
    it = RunningNode(make_engine(tmp_path))
    node, log = it.node, it.engine.state.log
    it.send()
    topic = it.engine.topic("t")
    assert topic is not None
    log.write_pending()
    node.run_due(unpaced=True)
    assert not topic.default.has_ready, "it is not on the disk"
    log.sync()
    node.run_due(unpaced=True)
    assert topic.default.has_ready
    assert not it.fatal
    node.background.shutdown()
    it.engine.close()


@pytest.mark.parametrize("loaded", [True, False])
async def test_older_messages_of_other_topics_do_not_hide_what_is_due(
    tmp_path: Path, loaded: bool
) -> None:
    """Several slices of another topic come first, or hours are still to be loaded after a start."""
    it = RunningNode(make_engine(tmp_path))
    for name, count in (("crowd", 3 * RELEASE_MAX), ("t", 1)):
        it.send(count, topic=name)
    it.engine.state.log.write_pending()
    it.engine.state.log.sync()
    if not loaded:
        it.node.background.shutdown()
        it.engine.close()
        it = RunningNode(make_engine(tmp_path))
    node = it.node
    node.log_commits.start()
    for found in (1, 0):
        delivery = await long_poll(node, ("default", "t"), ReceiveCall(10))
        assert (0 if delivery is None else len(delivery.rows)) == found
    assert not it.fatal
    node.log_commits.stop()
    node.background.shutdown()
    it.engine.close()


async def test_a_delivery_waits_for_few_slices_of_background_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four works never end. Without a gap behind each slice, each of them would have a slice in
    each turn that a delivery takes. The least of many deliveries is what no busy machine disturbs.
    """
    slices, ended = 0, False
    at_release: list[int] = []
    waited_for: list[int] = []

    def endless() -> Work:
        nonlocal slices
        while not ended:
            slices += 1
            until_s = REAL.steady_s() + SLICE_SECONDS
            while REAL.steady_s() < until_s:
                pass
            yield None

    async with running(tmp_path) as it:
        node = it.node
        wake = node.waiters.wake_all

        def wake_all(group: GroupKey, count: int) -> None:
            at_release.append(slices)
            wake(group, count)

        monkeypatch.setattr(node.waiters, "wake_all", wake_all)
        for number in range(4):
            node.spawn(f"endless {number}", endless)
        for _ in range(10):
            asks = long_poll(node, ("default", "t"), ReceiveCall(1, wait_ms=9_000))
            waits = asyncio.create_task(asks)
            it.send(delay_ms=100)
            assert await waits is not None
            waited_for.append(slices - at_release[-1])
        ended = True
    assert min(waited_for) <= 1, waited_for
