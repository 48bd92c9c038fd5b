"""The session of a stream: a client whose frames have all arrived must not keep the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.engine.limits import Limits
from delaylog.broker.streams.flow import Credit
from delaylog.broker.streams.session import FRAME_COST_BYTES, SHARE_BYTES, Session

COUNT = 1_000


class Flood:
    """A channel whose frames are there at once."""

    def __init__(self, raw: str) -> None:
        self._left = [raw] * COUNT

    async def read(self) -> str | None:
        return self._left.pop() if self._left else None

    async def write(self, raw: bytes) -> None:
        """Take it."""


@pytest.mark.parametrize("raw", ['{"credit":{}}', '{"stop":{}}'])
async def test_other_tasks_run_between_frames_without_effect(raw: str) -> None:
    """Counted in passes of the loop, while one client floods."""
    passes = 0

    async def pause(seconds: float = 0.0) -> None:
        nonlocal passes
        passes += 1
        await asyncio.sleep(seconds)

    node = SimpleNamespace(engine=SimpleNamespace(limits=Limits()), pause=pause)
    flow: Any = SimpleNamespace(
        node=node, credit=Credit(0, 0, 10), caller=SimpleNamespace(calls=None)
    )
    await Session(flow, Flood(raw))._read()
    assert passes == COUNT * FRAME_COST_BYTES // SHARE_BYTES
