"""Tells the engine's timeline what only the host sees: stalls of the loop, slow commits, starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


def watch_causes(node: Node) -> None:
    """Note stalls and slow commits of a node from now on, and that its start has ended."""
    node.loop_lag.on_stall = partial(_note, node, "stall")
    node.log_commits.on_slow = partial(_note, node, "slow_disk")
    note_started(node)


def note_started(node: Node) -> None:
    """Note a start or take-over that has just ended; it began before the log was replayed."""
    timeline, now_ms = node.engine.state.timeline, node.clock.now_ms()
    timeline.node("catching_up", node.engine.started_ms, now_ms)


def _note(node: Node, cause: str, seconds: float) -> None:
    now_ms = node.clock.now_ms()
    node.engine.state.timeline.node(cause, now_ms - round(seconds * 1_000), now_ms)
