"""Handlers of schedules: what takes long lets other calls run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from delaylog.broker.calls.handlers.schedules import _preview
from delaylog.broker.engine.schedules.commands import Instants
from delaylog.broker.engine.schedules.schedule import Rules, Schedule, Spec
from delaylog.broker.rules.schedules.timing import Timing


async def test_a_preview_pauses_between_instants() -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    node = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0), pause=pause)
    ctx: Any = SimpleNamespace(node=node, answer=lambda members: members)
    topic: Any = SimpleNamespace(name="t", namespace="default")
    one = Schedule(1, 1, "s", Spec(Timing(cron="0 0 29 2 *"), Rules(), b""), None)
    one.progress.next_ms = 951_782_400_000
    shown: Any = await _preview(ctx, topic, one, Instants(50))
    assert len(shown["firings"]) == 50
    assert pauses == 50
