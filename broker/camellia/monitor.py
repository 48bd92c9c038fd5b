"""The data of camellia's monitor: calls, movements and their lateness, per topic and period.

The numbers of a period are shown during the next period; before the end of the first period there
are none. They cover this node only, and list only topics with activity.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.model import DEFAULT_NAMESPACE, Activity, Delivery

PERIOD_SECONDS: Final = 60.0
"""As camellia has it by default."""


@dataclass(slots=True)
class Gap:
    """Time gaps between the due time of messages and an event."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def members(self, topic: str) -> dict[str, Any]:
        """The members of camellia's format."""
        return {
            "topic": topic,
            "count": self.count,
            "avg": self.total_ms / self.count,
            "max": self.max_ms,
        }


@dataclass(slots=True)
class Calls:
    """Answered calls of a topic; `pull` counts messages, not calls."""

    send: int = 0
    pull: int = 0
    delete: int = 0
    ack: int = 0
    get: int = 0
    pull_gap: Gap = field(default_factory=Gap)

    def pulled(self, delivery: Delivery, now_ms: int) -> None:
        """Messages were handed out."""
        late = np.abs(now_ms - delivery.rows["deliver_at"].astype(np.int64))
        self.pull += len(late)
        self.pull_gap.count += len(late)
        self.pull_gap.total_ms += int(late.sum())
        self.pull_gap.max_ms = max(self.pull_gap.max_ms, int(late.max()))


@dataclass(frozen=True, slots=True)
class Period:
    """The numbers of one period that has ended, in camellia's format."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    pull_gaps: list[dict[str, Any]] = field(default_factory=list)
    ready_gaps: list[dict[str, Any]] = field(default_factory=list)
    cpu_share: float = 0.0
    """Processor time of this process divided by elapsed time: 1 is one processor."""


class CollectorTimes:
    """How often and for how long Python's cycle collector ran, by generation."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self.seconds = [0.0] * len(gc.get_stats())
        self._began = 0.0
        gc.callbacks.append(self._note)

    def close(self) -> None:
        """Stop counting."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._now()
        else:
            self.seconds[info["generation"]] += self._now() - self._began

    def rows(self) -> list[tuple[str, int, int]]:
        """(name, times it ran, milliseconds) of each generation."""
        return [
            (f"generation_{k}", stats["collections"], int(self.seconds[k] * 1000))
            for k, stats in enumerate(gc.get_stats())
        ]


class Monitor:
    """Counts the calls of camellia's API, period by period."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node
        self._calls: dict[str, Calls] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._machine = node.machine
        self._cpu_seconds, self._began = self._machine.process_s(), self._machine.steady_s()
        self.last = Period()
        self.collector = CollectorTimes(self._machine.steady_s)
        self.started_ms = self.wall_ms()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._machine.wall_s() * 1000)

    def start(self) -> None:
        """Begin the first period."""
        self._arm()

    def stop(self) -> None:
        """End without closing the period."""
        if self._timer is not None:
            self._timer.cancel()
        self.collector.close()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PERIOD_SECONDS, self._turn)

    def calls(self, topic: str) -> Calls:
        """The counters of a topic in the running period."""
        found = self._calls.get(topic)
        if found is None:
            found = self._calls[topic] = Calls()
        return found

    def _turn(self) -> None:
        self._arm()
        self.close_period()

    def close_period(self) -> None:
        """Publish the numbers of the running period in `last`, and start a new one."""
        calls, self._calls = self._calls, {}
        moves: dict[str, Activity] = {}
        state = self._node.engine.state
        for number, activity in state.take_activities().items():
            topic = state.by_number.get(number)
            if topic is not None and topic.namespace == DEFAULT_NAMESPACE:
                moves[topic.name] = activity
        cpu, now = self._machine.process_s(), self._machine.steady_s()
        share = (cpu - self._cpu_seconds) / max(now - self._began, 1e-9)
        self._cpu_seconds, self._began = cpu, now
        period = Period(cpu_share=share)
        for name in sorted(calls.keys() | moves.keys()):
            made, moved = calls.get(name, Calls()), moves.get(name, Activity())
            period.requests.append(
                {
                    "topic": name,
                    "sendMsg": made.send,
                    "pullMsg": made.pull,
                    "deleteMsg": made.delete,
                    "ackMsg": made.ack,
                    "getMsg": made.get,
                    "triggerMsgReady": moved.released,
                    "triggerMsgEndLife": moved.found_ended,
                    "triggerMsgTimeout": moved.timed_out,
                }
            )
            if made.pull_gap.count:
                period.pull_gaps.append(made.pull_gap.members(name))
            if moved.released:
                gap = Gap(moved.released, moved.released_late_ms, moved.released_late_max_ms)
                period.ready_gaps.append(gap.members(name))
        self.last = period


REQUEST_KINDS: Final = (
    "sendMsg",
    "pullMsg",
    "deleteMsg",
    "ackMsg",
    "getMsg",
    "triggerMsgReady",
    "triggerMsgTimeout",
    "triggerMsgEndLife",
)
