"""camellia's topic info and its metrics text."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
from pathlib import Path
from typing import Any, Final

from delaylog import __version__
from delaylog.broker.calls.handlers.topics import group_counts
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.camellia.monitor import REQUEST_KINDS, Monitor
from delaylog.broker.engine.model import DEFAULT_NAMESPACE, Topic
from delaylog.broker.engine.views.counting import WaitingCounts

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
_METRIC_NAMES: Final = (
    "size_0_1min",
    "size_1min_10min",
    "size_10min_30min",
    "size_30min_1hour",
    "size_1hour_6hour",
    "size_6hour_1day",
    "size_1day_7day",
    "size_7day_30day",
    "size_30day_infinite",
)
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
