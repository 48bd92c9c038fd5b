"""An error in the middle of a frame: the broker takes nothing more and ends; a restart is sound.

Purpose: a state that was changed in part is neither served nor written to a checkpoint.
Method: a count that fails in the middle of a reschedule, as it did once after a row had been lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.apply.move_frames import apply_move
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.storage.columns import CountColumns
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import Cause
from delaylog.storage.log.payloads import MoveDecision
from tests.broker.host.running_node import RunningNode, make_engine


def fail(*_: Any) -> None:
    raise OverflowError("a count below zero")


def test_nothing_is_taken_or_kept_after_a_frame_that_failed(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.send([b"a", b"b"], ids=["a", "b"], delay=60_000)
    host.checkpoint(2)
    kept = host.engine.upkeep.kept_positions
    with monkeypatch.context() as patched:
        patched.setattr(CountColumns, "add", fail)
        with pytest.raises(OverflowError):
            host.reschedule(["a"], host.now_ms + 10_000)
    with pytest.raises(NotLeadingError, match="ends after an error"):
        host.send([b"c"], turn=False)
    with pytest.raises(OverflowError):
        host.engine.run_due(host.now_ms)
    with pytest.raises(OverflowError):
        host.engine.run_inline(host.engine.upkeep.checkpoint(lambda: host.now_ms))
    assert host.engine.upkeep.kept_positions == kept
    host.restart()
    host.advance(10_000)
    assert host.bodies() == []
    host.advance(50_000)
    assert host.bodies() == [b"a", b"b"]


def test_the_node_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        running = RunningNode(make_engine(tmp_path))
        running.node.start()
        monkeypatch.setattr(CountColumns, "add", fail)
        with pytest.raises(OverflowError):
            running.send(delay_ms=60_000)
        await running.until(lambda: bool(running.fatal))
        assert isinstance(running.fatal[0], OverflowError)
        await running.node.stop()

    asyncio.run(scene())


def test_a_move_of_a_row_that_is_missing_is_an_error(host: Any) -> None:
    """Its message would lose its body and all its refs."""
    refs = host.send([b"a"], delay=60_000).refs
    host.flush()
    state, due_ms = host.engine.state, refs * 0 + host.now_ms + 10_000
    decision = MoveDecision(
        topic=host.topic.number,
        group=0,
        tag=state.tag,
        hour_floor=state.hour_floor,
        cause=Cause.RESCHEDULE,
        refs=refs,
        deliver_at_ms=due_ms,
        expires_at_ms=refs * 0,
        priority=refs * 0,
        attempts=refs * 0,
        leases=None,
        from_ended=False,
    )
    rows = state.hours.rows(refs).copy()
    rows["topic"] = 0
    with pytest.raises(CorruptionError, match="missing"):
        apply_move(state, decision, host.now_ms, state.position, rows)
