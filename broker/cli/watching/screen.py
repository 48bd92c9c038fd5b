"""What `delaylog top` shows: totals, the table of topics, and the detail of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from delaylog.broker.cli.values import plain_text, time_text
from delaylog.broker.cli.watching.scrapes import (
    BY_KEY,
    COLUMNS,
    HANDED_OUT,
    NARROW,
    OTHER,
    READY,
    WIDE,
    Change,
    TopicRow,
    bars,
    cells,
    seconds_text,
)

BAR_WIDTH: Final = 40
HEAD_LINES: Final = 7
"""Lines around the table: totals, its header, and keys on a line or, in a narrow terminal, two."""
KEYS: Final = "↑↓ choose  enter detail  q quit  sort: " + "  ".join(
    f"{key} {title}" for key, title in COLUMNS.values()
)


@dataclass(slots=True)
class View:
    """What a person has chosen."""

    sort: str = "out_per_s"
    chosen: int = 0
    """Index of the topic in the table."""
    name: str | None = None
    """The chosen topic, which the choice follows when rows move; None = the first row."""
    detail: bool = False
    ended: bool = False
    topics: list[str] = field(default_factory=list)
    """The topics as shown, in order."""

    def press(self, key: str) -> None:
        """A key was pressed."""
        if key in ("q", "\x03", "\x04"):
            self.ended = True
        elif key in ("\r", "\n"):
            self.detail = not self.detail and self.topic != OTHER
            self.name = self.topic
        elif key == "\x1b":
            self.detail = False
        elif key in ("\x1b[A", "\x1bOA", "k"):
            self._choose(self.chosen - 1)
        elif key in ("\x1b[B", "\x1bOB", "j"):
            self._choose(self.chosen + 1)
        elif key in BY_KEY:
            self.sort = BY_KEY[key]

    def _choose(self, at: int) -> None:
        self.chosen = min(max(at, 0), max(len(self.topics) - 1, 0))
        self.name = self.topic

    @property
    def topic(self) -> str | None:
        """The chosen topic."""
        return self.topics[self.chosen] if self.chosen < len(self.topics) else None


def totals(change: Change) -> str:
    """Two lines about the whole broker."""
    now = change.now
    role = next(
        (
            dict(labels)["role"]
            for labels, value in now.samples.get("delaylog_cluster_role", {}).items()
            if value
        ),
        "",
    )
    first = (
        f"sent {change.per_second('delaylog_sent_total'):,.0f}/s",
        f"handed out {change.per_second('delaylog_delivered_total'):,.0f}/s",
        f"ended {change.per_second('delaylog_ended_total'):,.0f}/s",
        f"living {now.value('delaylog_living_messages'):,.0f}",
        f"topics {now.value('delaylog_topics'):,.0f}",
        f"ready p99 {seconds_text(change.quantile(0.99, READY))}",
    )
    second = (
        role,
        f"sync p99 {seconds_text(change.quantile(0.99, 'delaylog_fsync_seconds'))}",
        f"loop p99 {seconds_text(change.quantile(0.99, 'delaylog_loop_lag_seconds'))}",
        f"disk free {now.value('delaylog_disk_free_bytes') / (1 << 30):,.1f} GiB",
        f"memory {now.value('process_resident_memory_bytes') / (1 << 20):,.0f} MiB",
        f"processor {change.per_second('process_cpu_seconds_total'):.0%}",
        f"connections {now.value('delaylog_connections'):,.0f}",
    )
    return "   ".join(first) + "\n" + "   ".join(filter(None, second))


def table(rows: Sequence[TopicRow], view: View, lines: int, width: int) -> RenderableType:
    """The table, scrolled so that the chosen topic is in it, of the columns that fit the width."""
    view.topics = [row.topic for row in rows]
    if view.name in view.topics:
        view.chosen = view.topics.index(view.name)
    view.chosen = min(view.chosen, max(len(rows) - 1, 0))
    first = max(view.chosen - max(lines, 1) + 1, 0)
    out = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    columns = COLUMNS if width >= WIDE else NARROW
    for name in columns:
        _, title = COLUMNS[name]
        mark = "▾" if name == view.sort else ""
        out.add_column(title + mark, justify="left" if name == "topic" else "right", no_wrap=True)
    for at, row in enumerate(rows[first : first + max(lines, 1)], first):
        style = "reverse" if at == view.chosen else ""
        out.add_row(*(Text(plain_text(cell)) for cell in cells(row, columns)), style=style)
    return out


def detail(change: Change, namespace: str, stats: Mapping[str, Any]) -> RenderableType:
    """Counts, consumers and lateness of one topic."""
    labels = {"namespace": namespace, "topic": str(stats["topic"])}
    parts: list[RenderableType] = [Text(plain_text(str(stats["topic"])), style="bold")]
    counts = "   ".join(f"{name} {count:,}" for name, count in stats["counts"].items())
    parts.append(Text(counts))
    if stats.get("oldest_due_ms"):
        parts.append(Text(f"oldest message due {time_text(stats['oldest_due_ms'])}"))
    if stats.get("bounded_by"):
        parts.append(Text(f"bounded by {stats['bounded_by']}"))
    if stats.get("error"):
        parts.append(Text(plain_text(stats["error"]), style="red"))
    consumers = stats.get("consumers") or ()
    if consumers:
        named = ", ".join(f"{each['name']} ({each['leased']})" for each in consumers)
        parts.append(Text(plain_text(f"consumers, with messages under lease: {named}")))
    for title, name in (("became ready", READY), ("were handed out", HANDED_OUT)):
        lines = bars(change.buckets(name, **labels), BAR_WIDTH)
        parts.append(Text(f"\nmessages that {title} this late, in this interval"))
        if not lines:
            parts.append(Text("none", style="dim"))
        for bound, bar, count in lines:
            parts.append(Text(f"{bound:>10} {bar} {count}"))
    return Group(*parts)


def screen(change: Change, body: RenderableType, error: str = "") -> RenderableType:
    """The whole screen."""
    foot = Text(plain_text(error), style="red") if error else Text(KEYS, style="dim")
    return Group(Text(totals(change)), Text(""), body, foot)
