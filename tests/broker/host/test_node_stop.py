"""A node that stops: work that waits for what comes no more ends before the files close."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.host.node_role import Standalone
from delaylog.storage.work import Work
from tests.broker.engine.keyspace_work import put
from tests.broker.host.running_node import RunningNode, make_engine


class Following(Standalone):
    """A member that has heard of no leader."""

    leading = False  # type: ignore[assignment]


@pytest.mark.parametrize("way", ["retired", "following"])
async def test_work_ends_before_the_files_close(tmp_path: Path, way: str) -> None:
    """Of an engine that lost the lead, and of a follower whom nobody told what is committed."""
    seen: list[str] = []

    running = RunningNode(make_engine(tmp_path))
    engine, node = running.engine, running.node
    close = engine.close

    def closed() -> None:
        seen.append("closed")
        close()

    def waits() -> Work:
        try:
            while True:
                yield 0.001
        finally:
            seen.append("work ended")

    it: Any = engine
    it.close = closed
    node.start()
    position = put(engine, running.clock.now_ms(), b"k", b"v")
    if way == "retired":
        engine.state.retire(0)
    else:
        node.role = Following(node.log_commits)
        node.log_commits.position = lambda: position - 1  # type: ignore[method-assign]
    work = waits()
    node.spawn("waits", lambda: work)
    await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        await node.stop()
    assert not running.fatal
    assert seen == ["work ended", "closed"]
