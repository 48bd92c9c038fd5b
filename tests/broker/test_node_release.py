"""A node that releases messages: who does not wait is shown all that is safe by now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.handing_out import hand_out
from delaylog.broker.engine.dispatch.dispatching import RELEASE_MAX
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.send.sending import send
from delaylog.broker.engine.setup import Setup
from delaylog.broker.host.clock import BrokerClock
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.messages.batch import decode_send, encode_send


def test_what_was_synced_a_moment_ago_counts_for_who_does_not_wait(tmp_path: Path) -> None:
    """The log's thread is ahead of the loop, which is told a turn later."""

    async def scene() -> None:
        clock = BrokerClock()
        fatal: list[BaseException] = []
        engine = Engine(
            OsFileSystem(), str(tmp_path), Setup(random=Random(1)), now_ms=clock.now_ms()
        )
        node = ServingNode(engine, clock, fatal.append)
        topic = engine.make_topic("t", clock.now_ms())
        wire = encode_send({"n": 1, "delay_ms": 0, "body_size": 1, "bodies": b"x"})
        batch = decode_send(wire, rows_max=1)
        send(engine.state, topic, batch, clock.now_ms(), free_bytes=1 << 40)
        engine.state.log.write_pending()
        node.run_due(unpaced=True)
        assert not topic.default.has_ready, "it is not on the disk"
        engine.state.log.sync()
        node.run_due(unpaced=True)
        assert topic.default.has_ready
        assert not fatal
        node.background.shutdown()
        engine.close()

    asyncio.run(scene())


@pytest.mark.parametrize("loaded", [True, False])
def test_older_messages_of_other_topics_do_not_hide_what_is_due(
    tmp_path: Path, loaded: bool
) -> None:
    """Several slices of another topic come first, or hours are still to be loaded after a start."""

    async def scene() -> None:
        clock = BrokerClock()
        fatal: list[BaseException] = []
        engine = Engine(
            OsFileSystem(), str(tmp_path), Setup(random=Random(1)), now_ms=clock.now_ms()
        )
        names = (("crowd", 3 * RELEASE_MAX), ("t", 1))
        topics = {name: engine.make_topic(name, clock.now_ms()) for name, _ in names}
        for name, count in names:
            wire = encode_send({"n": count, "delay_ms": 0, "body_size": 1, "bodies": b"x" * count})
            batch = decode_send(wire, rows_max=count)
            send(engine.state, topics[name], batch, clock.now_ms(), free_bytes=1 << 40)
        engine.state.log.write_pending()
        engine.state.log.sync()
        if not loaded:
            engine.close()
            engine = Engine(
                OsFileSystem(), str(tmp_path), Setup(random=Random(1)), now_ms=clock.now_ms()
            )
        node = ServingNode(engine, clock, fatal.append)
        node.log_commits.start()
        for found in (1, 0):
            delivery = await hand_out(node, ("default", "t"), ReceiveCall(10))
            assert (0 if delivery is None else len(delivery.rows)) == found
        assert not fatal
        node.log_commits.stop()
        node.background.shutdown()
        engine.close()

    asyncio.run(scene())
