"""The HTML page of an audit: one small self-contained file with SVG plots.

The time axis of a plot has at most 240 points; tables show the hundred largest topics. All details
are in the parquet files.
"""

from __future__ import annotations

import html
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from pyspark_delaylog.segments.options import STATES

PLACES_MAX: Final = 240
TOPICS_MAX: Final = 100
_HOUR_S: Final = 3_600
_COLORS: Final = {
    "waiting": "#9ecae1",
    "ready": "#3182bd",
    "leased": "#756bb1",
    "acked": "#74c476",
    "expired": "#fdae6b",
    "dead": "#de2d26",
    "cancelled": "#bdbdbd",
    "replaced": "#d9d9d9",
    "moved": "#efedf5",
    "damaged": "#000000",
}
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;text-align:right;"
    "border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}svg{max-width:100%;"
    "height:auto}"
)


def write_report(
    path: Path, summary: Mapping[str, Any], tables: Mapping[str, Sequence[Any]]
) -> None:
    """Write the HTML file. `tables` are counts, lateness and retries, with hours as numbers."""
    when = datetime.fromtimestamp(summary["as_of_ms"] / 1000, UTC).isoformat(" ", "seconds")
    shown = [state for state in STATES if summary["states"].get(state)]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>delaylog audit</title>",
        f"<style>{_STYLE}</style><h1>Audit of {html.escape(str(summary['folder']))}</h1>",
        f"<p>{summary['rows']:,} messages, counted once per group that sees them, as of {when}",
        f" (log position {summary['position']:,}); read in {summary['seconds']:g} s.</p>",
        _table(("state", "messages"), [(s, summary["states"][s]) for s in shown]),
        "<h2>Messages by due hour</h2>",
        _hours_plot(tables["counts"], shown),
        "<h2>Lateness</h2><p>Time of the ack minus due time.</p>",
        _lateness_plot(tables["lateness"]),
        _lateness_table(tables["lateness"]),
        "<h2>Deliveries per message</h2>",
        _attempts_plot(tables["retries"]),
        "<h2>Topics</h2>",
        _topics_table(tables["counts"], shown),
        "</html>\n",
    ]
    path.write_text("".join(parts), encoding="utf-8")


# --------------------------------------------------------------------------- plots


def places_of(hours: Iterable[int]) -> tuple[dict[int, int], list[datetime], int]:
    """(point of each hour, start of each point, hours per point); at most PLACES_MAX points."""
    numbers = sorted(set(hours))
    if not numbers:
        return {}, [], 1
    width = -(-(numbers[-1] - numbers[0] + 1) // PLACES_MAX)
    places = {number: (number - numbers[0]) // width for number in numbers}
    count = places[numbers[-1]] + 1
    starts = [datetime.fromtimestamp((numbers[0] + k * width) * _HOUR_S, UTC) for k in range(count)]
    return places, starts, width


def _hours_plot(counts: Sequence[Any], shown: Sequence[str]) -> str:
    places, starts, width = places_of(row["hour"] for row in counts)
    if not starts:
        return "<p>None.</p>"
    sums = {state: np.zeros(len(starts)) for state in shown}
    for row in counts:
        sums[row["state"]][places[row["hour"]]] += row["messages"]
    figure, axes = _figure()
    below = np.zeros(len(starts))
    for state, messages in sums.items():
        axes.bar(starts, messages, width / 24 * 0.95, below, color=_COLORS[state], label=state)
        below += messages
    axes.set_ylabel("messages" if width == 1 else f"messages in {width} hours")
    axes.legend(loc="upper left", fontsize=8, ncols=min(len(sums), 5))
    figure.autofmt_xdate()
    return _svg(figure)


def _lateness_plot(lateness: Sequence[Any]) -> str:
    rows = [row for row in lateness if row["hour"] is not None]
    places, starts, _ = places_of(row["hour"] for row in rows)
    if not starts:
        return "<p>No message was acknowledged.</p>"
    figure, axes = _figure()
    for name, label in (("p50_ms", "p50"), ("p99_ms", "p99"), ("max_ms", "max")):
        worst = np.full(len(starts), np.nan)
        for row in rows:
            place = places[row["hour"]]
            worst[place] = np.fmax(worst[place], row[name])
        axes.plot(starts, np.fmax(worst, 0.5), marker=".", label=label)
    axes.set_yscale("log")
    axes.set_ylabel("ms, of the worst topic")
    axes.legend(fontsize=8)
    figure.autofmt_xdate()
    return _svg(figure)


def _attempts_plot(retries: Sequence[Any]) -> str:
    sums: dict[int, int] = defaultdict(int)
    for row in retries:
        sums[row["attempts"]] += row["messages"]
    if not sums:
        return "<p>None.</p>"
    figure, axes = _figure(2.4)
    axes.bar(list(sums), list(sums.values()), color="#3182bd")
    axes.set_yscale("log")
    axes.set_xlabel("attempts")
    axes.set_ylabel("messages")
    axes.set_xticks(range(max(sums) + 1) if max(sums) < 20 else range(0, max(sums) + 1, 5))
    return _svg(figure)


def _figure(height: float = 3.2) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    from matplotlib import rc_context

    out = io.StringIO()
    # Text is not converted to paths, and equal input gives an equal file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "delaylog"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


# --------------------------------------------------------------------------- tables


def _lateness_table(lateness: Sequence[Any]) -> str:
    rows = sorted((row for row in lateness if row["hour"] is None), key=lambda row: -row["acked"])
    names = ("acked", "p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms")
    return _table(
        ("topic", "group", *(name.replace("_", " ").replace("99 9", "99.9") for name in names)),
        [(_topic(row), row["group"], *(row[name] for name in names)) for row in rows[:TOPICS_MAX]],
    )


def _topics_table(counts: Sequence[Any], shown: Sequence[str]) -> str:
    sums: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in counts:
        sums[_topic(row), row["group"] or "-"][row["state"]] += row["messages"]
    most = sorted(sums.items(), key=lambda item: -sum(item[1].values()))
    table = _table(
        ("topic", "group", *shown),
        [(*key, *(states.get(state, 0) for state in shown)) for key, states in most[:TOPICS_MAX]],
    )
    left = len(most) - TOPICS_MAX
    return table + (f"<p>And {left:,} more, in counts/.</p>" if left > 0 else "")


def _topic(row: Any) -> str:
    if row["topic"] is None:
        return "(damaged)"
    space = row["namespace"]
    return str(row["topic"]) if space == "default" else f"{space}/{row['topic']}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = ["<table><tr>", *(f"<th>{html.escape(name)}" for name in head)]
    for row in rows:
        out.append("<tr>")
        for value in row:
            text = f"{value:,}" if isinstance(value, int) else html.escape(str(value))
            out.append(f"<td>{text}")
    return "".join([*out, "</table>"])
