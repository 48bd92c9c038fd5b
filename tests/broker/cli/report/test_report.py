"""`delaylog report`: figures, incidents and causes of made-up minutes, and the page of a folder."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cli.main import main
from delaylog.broker.cli.report.analysis import (
    Incident,
    Window,
    incidents,
    later_than,
    stalled_s,
    summed,
)
from delaylog.broker.cli.report.page import page
from delaylog.broker.cli.report.svg import line_chart
from delaylog.broker.cli.watching.scrapes import quantile
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import (
    MINUTE_MS,
    LateMessage,
    MinuteRow,
    UntakenGroup,
    write_row,
)
from delaylog.broker.host.watch.loop_lag import BOUNDS as LOOP_BOUNDS
from delaylog.broker.host.watch.timings import DISK_BOUNDS

FIRST = 29_000_000


def late(*values: int) -> list[int]:
    """Counts by bucket of these latenesses."""
    histogram = Histogram(BOUNDS_MS)
    for value in values:
        histogram.note(value)
    return histogram.counts


QUIET = MinuteRow(FIRST, 1, sent=60, delivered=60, ended=60, ready_late=late(*[1] * 60))


def samples(bounds: Sequence[float], *values: float) -> list[int]:
    """Counts by bucket of these seconds."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.note(value)
    return histogram.counts


def hour(length: int = 60) -> Window:
    return Window(FIRST, FIRST + length)


def minutes(count: int) -> list[MinuteRow]:
    return [replace(QUIET, minute=FIRST + at) for at in range(count)]


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.99]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[int], share: float) -> None:
    found = quantile(late(*values), BOUNDS_MS, share)
    assert found is not None
    exact = sorted(values)[max(-(-round(share * len(values) * 100) // 100) - 1, 0)]
    bucket = next(at for at, bound in enumerate(BOUNDS_MS) if exact <= bound)
    assert (0, *BOUNDS_MS)[bucket] <= found <= BOUNDS_MS[bucket]


def test_counts() -> None:
    assert quantile(late(), BOUNDS_MS, 0.5) is None
    assert quantile(late(10**9), BOUNDS_MS, 0.5) == BOUNDS_MS[-1]
    assert later_than(late(5, 100, 101, 400_000), 100) == 2
    rows = [replace(QUIET, ready_late=late(1, 7)), replace(QUIET, ready_late=[])]
    assert summed(rows, "ready_late") == late(1, 7)
    assert summed([], "ready_late") == []


def test_each_incident_is_named_with_its_minutes() -> None:
    """Purpose: each cause is found, and neighbours are one. Method: one of each in a quiet hour."""
    rows = minutes(60)
    for at in (5, 6):
        rows[at] = replace(rows[at], ready_late=late(*[1] * 95, *[900] * 5))
    rows[10] = replace(rows[10], disk_full=True)
    rows[20] = replace(rows[20], syncs=samples(DISK_BOUNDS, *[0.001] * 5_000, 10))
    rows[25] = replace(rows[25], loop_lags=samples(LOOP_BOUNDS, *[0.001] * 4_900, 10))
    stuck = UntakenGroup("default", "t", "billing", "no_consumers")
    for at in (30, 31):
        rows[at] = replace(rows[at], untaken=[stuck])
    rows[35] = replace(rows[35], dead=1)
    rows[40:] = [replace(row, run=2) for row in rows[40:]]
    rows[45:] = [replace(row, leading=False) for row in rows[45:]]
    rows[57:] = [replace(row, run=3) for row in rows[57:]]
    del rows[55:57], rows[50:53]
    found = {
        each.what: (each.from_minute - FIRST, each.to_minute - FIRST)
        for each in incidents(rows, 100, hour())
    }
    assert found == {
        "more than 1 % of messages were ready over 100 ms late": (5, 7),
        "sends were refused: the disk was full": (10, 11),
        "syncs of the disk were slow": (20, 21),
        "the event loop was blocked": (25, 26),
        "nobody took ready messages of default/t, group billing: no consumers": (30, 32),
        "messages became dead letters": (35, 36),
        "the broker was restarted": (40, 41),
        "the node ceased to lead": (45, 46),
        "no figures": (50, 53),
        "the broker was down": (55, 57),
    }
    assert incidents(minutes(60), 100, hour()) == []


def test_stalls_count_if_they_hold_messages_up() -> None:
    """Ordinary lags of a busy loop are none, however many; many short stalls are some."""
    assert stalled_s(samples(LOOP_BOUNDS, *[0.09] * 600), LOOP_BOUNDS) == 0
    assert stalled_s(samples(LOOP_BOUNDS, *[0.15] * 10), LOOP_BOUNDS) == pytest.approx(1)
    assert stalled_s(samples(DISK_BOUNDS, 0.7), DISK_BOUNDS) == 0.5
    assert stalled_s([], DISK_BOUNDS) == 0


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (slice(0, 60), []),
        (slice(5, 60), [Incident(FIRST, FIRST + 5, "the broker was down")]),
        (
            slice(0, 50),
            [Incident(FIRST + 50, FIRST + 60, "the broker is down, or writes no figures")],
        ),
    ],
)
def test_an_outage_at_an_end_of_the_window(kept: slice, found: list[Incident]) -> None:
    assert incidents(minutes(60)[kept], 100, hour()) == found


def test_charts_are_well_formed() -> None:
    """A gap makes two lines, one value is visible, and text is escaped."""
    text = line_chart("<a>", {"x&y": [(0, 1), (1, None), (2, 3), (3, 4)]}, "<ms>", [(0, "<")])
    chart = ElementTree.fromstring("<r>" + text.replace("<p class=legend>", "<p>") + "</r>")
    lines = [each for each in chart.iter("polyline") if "24,4" not in (each.get("points") or "")]
    assert [len((each.get("points") or "").split()) for each in lines] == [2, 2]
    high = line_chart("high", {"x": [(0, 400_000), (1, 0)]}, "ms", [])
    assert ">300,000 ms</text>" in high
    empty = line_chart("nothing", {"x": []}, "", [])
    assert '<polyline points="0,4' in empty


def test_the_page_has_everything() -> None:
    rows = minutes(1_500)
    one = LateMessage(
        "<t>",
        "m&m",
        1_234,
        (FIRST + 700) * MINUTE_MS,
        "shop",
        "g",
        [("no_consumers", 1_000), ("slow_disk", 234)],
    )
    rows[700] = replace(rows[700], late=[one])
    text = page(rows, "delaylog: <folder>", 100, hour(1_500))
    assert text.count('<svg viewBox="0 0 900') == 5
    assert "100.000% of 90,000" in text
    assert "<td>shop/&lt;t&gt;<td>g<td>m&amp;m<td>1.2 s<td>" in text
    assert "<td>no consumers 1.0 s, slow disk 234 ms</table>" in text
    assert "<t>" not in text
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|src=", text), "nothing is loaded"
    assert len(page(minutes(1), "one", 100, hour(1))) > 1_000


def test_a_row_of_an_earlier_release_is_shown() -> None:
    """It has no namespace, no group and no causes."""
    row = replace(QUIET, late=[LateMessage("t", "m", 1_234, FIRST * MINUTE_MS)])
    assert "<td>t<td><td>m<td>1.2 s<td>" in page([row], "old", 100, hour(1))


def test_the_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "page.html"
    folder = str(tmp_path / "data")
    (tmp_path / "data").mkdir()
    words = ["report", folder, "--out", str(out)]
    assert main(words) == 2
    assert "has no file 'minutes'" in capsys.readouterr().err
    now_minute = int(time.time()) // 60
    write_row(folder, replace(QUIET, minute=now_minute - 100))
    # No row of that time is no fault of who asks: the broker may have been down.
    assert main([*words, "--since", "1h"]) == 0
    assert capsys.readouterr().out == (
        f"{out}: 0 minutes: there are no figures of that time, give a longer --since\n"
    )
    assert "There are no figures of this time" in out.read_text()
    assert "the broker is down, or writes no figures" in out.read_text()
    assert main(words) == 0
    assert capsys.readouterr().out == f"{out}: 1 minutes\n"
    assert out.read_text().startswith("<!doctype html>")
    assert "the broker is down, or writes no figures" in out.read_text()
    write_row(folder, replace(QUIET, minute=now_minute - 10))
    assert main([*words, "--since", "1h"]) == 0
    assert "<td>50<td>the broker was down" in out.read_text()
    assert out.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("DELAYLOG_DATA_DIR", folder)
    assert main(["report", "--out", str(out)]) == 0
    assert f"<title>delaylog: {folder}</title>" in out.read_text()
    assert main([*words, "--late", "30ms"]) == 2
    assert "is no bound that is counted" in capsys.readouterr().err
    assert main([*words, "--since", "8d"]) == 2
