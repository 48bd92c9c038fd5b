"""camellia's monitor, its topic info and its metrics text.

The monitor has calls, movements and their lateness, per topic and period. The numbers of a period
are shown during the next period; before the end of the first period there are none. They cover this
node only, and list only topics with activity.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from delaylog import __version__
from delaylog.broker.calls.handlers.topics import group_counts
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.model import DEFAULT_NAMESPACE, Activity, Delivery, Topic
from delaylog.broker.engine.views.counts import WaitingCounts

# -------------------------------------------------------------------------------------- monitor

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
        """Begin a period."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PERIOD_SECONDS, self._turn)

    def stop(self) -> None:
        """End without closing the period."""
        if self._timer is not None:
            self._timer.cancel()
        self.collector.close()

    def calls(self, topic: str) -> Calls:
        """The counters of a topic in the running period."""
        found = self._calls.get(topic)
        if found is None:
            found = self._calls[topic] = Calls()
        return found

    def _turn(self) -> None:
        """Publish the numbers of the running period in `last`, and start a new one."""
        self.start()
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


# ----------------------------------------------------------------------- topic info and metrics

STRETCH_NAMES: Final = (
    "sizeOf0To1min",
    "sizeOf1minTo10min",
    "sizeOf10minTo30min",
    "sizeOf30minTo1hour",
    "sizeOf1hourTo6hour",
    "sizeOf6hourTo1day",
    "sizeOf1dayTo7day",
    "sizeOf7dayTo30day",
    "sizeOf30dayToInfinite",
)
_METRIC_NAMES: Final = tuple(
    name.replace("Of", "_", 1).replace("To", "_").lower() for name in STRETCH_NAMES
)
"""For example size_1min_10min."""
_SLICE_TOPICS: Final = 128


def no_info(name: str) -> dict[str, Any]:
    """The info of a topic that does not exist."""
    return _members(name, 0, 0, 0, [0] * len(STRETCH_NAMES))


async def topic_infos(node: ServingNode, only: Topic | None = None) -> list[dict[str, Any]]:
    """The info of one topic, or of all topics by name."""
    counts = WaitingCounts(node.engine.state, node.clock.now_ms(), only)
    await node.run(counts.work())
    topics = [only] if only is not None else list(node.engine.state.by_number.values())
    topics = [topic for topic in topics if topic.namespace == DEFAULT_NAMESPACE]
    out = []
    for at, topic in enumerate(sorted(topics, key=lambda topic: topic.name)):
        if at % _SLICE_TOPICS == _SLICE_TOPICS - 1:
            await asyncio.sleep(0)
        by_state = group_counts(topic.default)
        stretches = counts.of(topic)
        # Due messages that have not reached the ready queue yet count as waiting too.
        stretches[0] += max(by_state["waiting"] - counts.total(topic), 0)
        out.append(
            _members(
                topic.name,
                by_state["waiting"],
                by_state["ready"],
                by_state["leased"],
                stretches,
            )
        )
    return out


def _members(
    name: str, waiting: int, ready: int, leased: int, stretches: list[int]
) -> dict[str, Any]:
    return {
        "topic": name,
        "waitingQueueSize": waiting,
        "waitingQueueInfo": dict(zip(STRETCH_NAMES, stretches, strict=True)),
        "readyQueueSize": ready,
        "ackQueueSize": leased,
    }


# --------------------------------------------------------------------------- metrics


class _Text:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def head(self, name: str, text: str) -> None:
        self._lines += [f"# HELP {name} Delay Queue {text}", f"# TYPE {name} gauge"]

    def value(self, name: str, value: float, /, **labels: str) -> None:
        inner = ", ".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        braces = f"{{{inner}}}" if inner else ""
        self._lines.append(f"{name}{braces} {value}")

    def render(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def metrics_text(node: ServingNode, monitor: Monitor) -> str:
    """Gauges of the last full period and of the present state, under camellia's names."""
    # As in /metrics, only a limited number of topics have separate series.
    named = {topic.name for topic in node.engine.state.series.topics.values()}
    infos = [info for info in await topic_infos(node) if info["topic"] in named]
    text = _Text()
    system = platform.uname()
    text.head("info", "Info")
    text.value(
        "info",
        1,
        delaylog_version=__version__,
        arch=system.machine,
        os_name=system.system,
        os_version=system.release,
        system_load_average=f"{os.getloadavg()[0]:.2f}",
        python_version=platform.python_version(),
    )
    text.head("uptime", "Uptime")
    text.value("uptime", monitor.wall_ms() - monitor.started_ms)
    text.head("start_time", "StartTime")
    text.value("start_time", monitor.started_ms)
    text.head("memory_info", "Memory")
    for kind, value in _memory().items():
        text.value("memory_info", value, type=kind)
    text.head("cpu", "Cpu")
    text.value("cpu", os.cpu_count() or 1, type="cpu_num")
    text.value("cpu", round(monitor.last.cpu_share, 6), type="usage")
    text.head("gc", "gc")
    for name, count, spent_ms in monitor.collector.rows():
        text.value("gc", count, name=name, type="count")
        text.value("gc", spent_ms, name=name, type="time")
    text.head("request", "Request")
    for row in monitor.last.requests:
        for kind in REQUEST_KINDS:
            text.value("request", row[kind], topic=row["topic"], type=kind)
    for name, title, gaps in (
        ("pull_msg_time_gap", "Pull Msg Time Gap", monitor.last.pull_gaps),
        ("ready_queue_time_gap", "Ready Queue Time Gap", monitor.last.ready_gaps),
    ):
        text.head(name, title)
        for row in gaps:
            for kind in ("count", "avg", "max"):
                text.value(name, row[kind], topic=row["topic"], type=kind)
    text.head("topic_info", "Topic Info")
    for info in infos:
        for kind in ("readyQueueSize", "ackQueueSize", "waitingQueueSize"):
            text.value("topic_info", info[kind], topic=info["topic"], type=kind)
        for kind, member in zip(_METRIC_NAMES, STRETCH_NAMES, strict=True):
            text.value(
                "topic_info", info["waitingQueueInfo"][member], topic=info["topic"], type=kind
            )
    return text.render()


def _memory() -> dict[str, int]:
    """Memory in bytes: of the machine, and the resident size of this process."""
    page = resource.getpagesize()
    out = {
        "total_memory": os.sysconf("SC_PHYS_PAGES") * page,
        "free_memory": os.sysconf("SC_AVPHYS_PAGES") * page,
    }
    try:
        out["resident_memory"] = int(Path("/proc/self/statm").read_text().split()[1]) * page
    except (OSError, ValueError, IndexError):
        # Systems without /proc report only the peak.
        out["resident_memory_max"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return out
