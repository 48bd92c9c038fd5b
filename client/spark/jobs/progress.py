"""The progress of a job on standard error: rows, their rate, and Spark's tasks.

It is a bar on a terminal, elsewhere a plain line every ten seconds, as logs need it. A thread shows
it, from the second second on. What it cannot find out it leaves out: progress never fails a job.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

FIRST_S: Final = 2.0
LINE_S: Final = 10.0
BAR_S: Final = 0.5
_BAR_WIDTH: Final = 30
_WIPE: Final = "\r\x1b[K"

Tasks = tuple[int, int]
"""(completed, all) tasks of the stages that run."""


@contextmanager
def progress(
    spark: Any,
    job: str,
    rows: Callable[[], int | None] = lambda: None,
    total: int | None = None,
    stream: TextIO | None = None,
) -> Iterator[None]:
    """Show the progress of the block. `rows` returns how many of `total` rows are done."""
    out = sys.stderr if stream is None else stream
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(spark, job, rows, total, out, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def rows_read(spark: Any) -> Callable[[], int | None]:
    """A function that returns the rows that the largest stage of later jobs has read so far.

    Spark adds those of a task at its end, and at heartbeats (every 10 s by default).
    """
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))

    def rows() -> int | None:
        store = spark._jsc.sc().statusStore()
        jobs = map(tracker.getJobInfo, set(tracker.getJobIdsForGroup(None)) - before)
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        # Not the sum: later stages read the results of the first one again.
        return max((store.lastStageAttempt(each).inputRecords() for each in stages), default=None)

    return rows


def line(job: str, rows: int | None, total: int | None, seconds: float, tasks: Tasks) -> str:
    """What is done after `seconds`."""
    words = []
    if rows is not None:
        of = f" of {total:,} ({rows / total:.0%})" if total else ""
        words.append(f"{rows:,}{of} rows, {rows / max(seconds, 1e-3):,.0f} rows/s")
    if tasks[1]:
        words.append(f"{tasks[0]} of {tasks[1]} tasks")
    return f"delaylog spark {job}: {', '.join(words) or f'{seconds:.0f} s'}"


def bar(rows: int | None, total: int | None, tasks: Tasks) -> str:
    """The share that is done: of the rows if their number is known, or else of the tasks."""
    done, of = (rows, total) if rows is not None and total else tasks
    filled = _BAR_WIDTH * min(done, of) // of if of else 0
    return f"[{'#' * filled:<{_BAR_WIDTH}}]"


def tasks_of(spark: Any) -> Tasks:
    """Tasks of the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


def _show(
    spark: Any,
    job: str,
    rows: Callable[[], int | None],
    total: int | None,
    out: TextIO,
    ended: threading.Event,
) -> None:
    began = time.monotonic()
    terminal = out.isatty()
    pause_s = FIRST_S
    while not ended.wait(pause_s):
        pause_s = BAR_S if terminal else LINE_S
        try:
            done, tasks = rows(), tasks_of(spark)
            text = line(job, done, total, time.monotonic() - began, tasks)
            if terminal:
                out.write(f"{_WIPE}{bar(done, total, tasks)} {text}")
            else:
                out.write(text + "\n")
            out.flush()
        except Exception:
            # The broker may be busy, Spark may stop, and nobody may read standard error any more.
            continue
    if terminal:
        out.write(_WIPE)
        out.flush()
