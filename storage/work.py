"""Background work in slices: a core returns it as a generator, and the host runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

IoJob = Callable[[], None]
Work = Generator[IoJob | float | None, None, None]
"""Yields None to pause, a number of seconds to wait, or a job for any thread."""


def until(stopping: Callable[[], bool], work: Work) -> Generator[IoJob | float | None, None, bool]:
    """Run `work` to its end, or close it early once `stopping()`; return whether it finished.

    An error of its last job is thrown into `work` before it is closed.
    """
    error: Exception | None = None
    try:
        while not stopping():
            step = work.send(None) if error is None else work.throw(error)
            error = None
            try:
                yield step
            except Exception as failure:
                error = failure
        if error is not None:
            work.throw(error)
        return False
    except StopIteration:
        return True
    finally:
        work.close()


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A job that only reads, and may therefore run beside any other job: on a separate thread, so
    that loading messages due soon does not wait behind the fsync of a checkpoint.
    """

    read: Callable[[], None]

    def __call__(self) -> None:
        """Run it."""
        self.read()
