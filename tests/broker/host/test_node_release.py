"""A node that releases messages: who does not wait is shown all that is safe by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.engine.dispatch.dispatching import RELEASE_MAX
from tests.broker.host.running_node import RunningNode, make_engine


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
