"""How work runs: slices of two milliseconds, and what it waits for in between.

A node's loop and an embedded broker's threads drive the same work by this; what differs is how they
give way, see to a commit, and have a job done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from delaylog.storage.work import IoJob, Work

SLICE_SECONDS: Final = 0.002


def run_slice(work: Work, error: Exception | None) -> IoJob | float | None:
    """Let work go on until its slice is over, which is None, or it waits: for a job, or so many
    seconds for the log. StopIteration is its end; `error` is what its last job failed by.
    """
    began = perf_counter()
    step = next(work) if error is None else work.throw(error)
    while step is None and perf_counter() - began < SLICE_SECONDS:
        step = next(work)
    return step


async def drive(
    work: Work,
    *,
    pause: Callable[[], Awaitable[None]],
    committed: Callable[[float], Awaitable[None]],
    done: Callable[[IoJob], Awaitable[None]],
) -> None:
    """Run work to its end. Errors of its jobs are the work's, whose own are the caller's."""
    error: Exception | None = None
    while True:
        try:
            step = run_slice(work, error)
        except StopIteration:
            return
        error = None
        try:
            if step is None:
                await pause()
            elif isinstance(step, float):
                await committed(step)
            else:
                await done(step)
        except Exception as failure:
            error = failure
