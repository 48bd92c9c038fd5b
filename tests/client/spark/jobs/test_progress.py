"""Progress of jobs: a bar on a terminal, lines elsewhere, and never a reason to fail."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_delaylog.jobs import progress as module
from pyspark_delaylog.jobs.progress import bar, line, progress, rows_read
from tests.waiting import await_that


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Session:
    """A session of two running stages, and of one that has just ended."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802 (Spark's name)
        stages = {
            1: SimpleNamespace(numCompletedTasks=3, numTasks=8),
            2: SimpleNamespace(numCompletedTasks=0, numTasks=2),
            3: None,
        }
        tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
        return SimpleNamespace(statusTracker=lambda: tracker)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_S", "LINE_S", "BAR_S"):
        monkeypatch.setattr(module, name, 0.01)


@pytest.mark.parametrize(
    ("rows", "total", "tasks", "text"),
    [
        (12_000, None, (3, 10), "12,000 rows, 3,000 rows/s, 3 of 10 tasks"),
        (12_000, 48_000, (0, 0), "12,000 of 48,000 (25%) rows, 3,000 rows/s"),
        (None, None, (3, 10), "3 of 10 tasks"),
        (None, None, (0, 0), "4 s"),
    ],
)
def test_a_line(rows: int | None, total: int | None, tasks: tuple[int, int], text: str) -> None:
    assert line("backfill", rows, total, 4.0, tasks) == f"delaylog spark backfill: {text}"


def test_a_bar_shows_the_share_of_rows_or_of_tasks() -> None:
    assert bar(5, 10, (0, 0)) == f"[{'#' * 15}{' ' * 15}]"
    assert bar(5, None, (1, 3)) == f"[{'#' * 10}{' ' * 20}]"
    assert bar(None, None, (0, 0)) == f"[{' ' * 30}]"


def test_lines_elsewhere_and_a_wiped_bar_on_a_terminal() -> None:
    lines, terminal = io.StringIO(), Terminal()
    with progress(Session(), "audit", lambda: 7, stream=lines):
        await_that(lines.getvalue)
    assert "7 rows" in lines.getvalue()
    assert lines.getvalue().splitlines()[0].endswith("rows/s, 3 of 10 tasks")
    assert "\x1b" not in lines.getvalue()
    with progress(Session(), "audit", stream=terminal):
        await_that(terminal.getvalue)
    assert "\r\x1b[K[#########" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K"), "the terminal is left clean"


def test_rows_read_are_those_of_the_largest_stage_of_later_jobs() -> None:
    """Jobs from before are not part of it, and what has ended meanwhile may be unknown."""
    jobs = {1: [10]}
    records = {10: 900, 20: 40, 21: 700, 30: 7}
    tracker = SimpleNamespace(
        getJobIdsForGroup=lambda group: list(jobs),
        getJobInfo=lambda job: SimpleNamespace(stageIds=jobs[job]) if jobs[job] else None,
    )
    store = SimpleNamespace(
        lastStageAttempt=lambda stage: SimpleNamespace(inputRecords=lambda: records[stage])
    )
    jvm = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    context = SimpleNamespace(statusTracker=lambda: tracker)
    rows = rows_read(SimpleNamespace(sparkContext=context, _jsc=jvm))
    assert rows() is None
    jobs |= {2: [20, 21], 3: [30], 4: []}
    assert rows() == 700


def test_what_cannot_be_found_out_fails_nothing() -> None:
    asked = []

    def rows() -> int:
        asked.append(1)
        raise OSError("the broker is away")

    out = io.StringIO()
    with progress(Session(), "backfill", rows, stream=out):
        await_that(lambda: len(asked) > 2)
    assert out.getvalue() == ""
