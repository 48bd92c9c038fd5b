"""Background work in slices, as a core hands it to whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

IoJob = Callable[[], None]
Work = Generator[IoJob | float | None, None, None]
"""Background work in slices: yields None to pause, seconds to wait, or a job for any thread."""


def until(stopping: Callable[[], bool], work: Work) -> Generator[IoJob | float | None, None, bool]:
    """Work that is closed where it stands once `stopping()`; returns whether it came to its end.

    It is told before how its last job ended.
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
    """A job that only reads, and may therefore run beside any other job: on a thread of its own,
    so that what is due soon does not wait behind the fsync of a checkpoint.
    """

    read: Callable[[], None]

    def __call__(self) -> None:
        """Run it."""
        self.read()
