"""Runs work in slices of two milliseconds; between them it may wait for a job or for a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from delaylog.storage.work import IoJob, Work

SLICE_SECONDS: Final = 0.002


def run_slice(
    work: Work, error: Exception | None, now: Callable[[], float]
) -> IoJob | float | None:
    """Run work until its slice is over (returns None) or it has to wait.

    Returns the job that the work waits for, or the seconds after which it checks again whether the
    log is committed. `error` is the error of its last job, `now` a steady clock in seconds. Raises
    StopIteration when the work has ended.
    """
    began = now()
    step = next(work) if error is None else work.throw(error)
    while step is None and now() - began < SLICE_SECONDS:
        step = next(work)
    return step


async def drive(
    work: Work,
    *,
    now: Callable[[], float],
    pause: Callable[[], Awaitable[None]],
    committed: Callable[[float], Awaitable[None]],
    done: Callable[[IoJob], Awaitable[None]],
) -> None:
    """Run work to its end. Errors of its jobs are thrown into the work; its errors are raised."""
    error: Exception | None = None
    while True:
        try:
            step = run_slice(work, error, now)
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
