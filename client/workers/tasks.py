"""Helpers for the asyncio tasks of a worker: waking, waiting and cancelling.

Nothing here knows of messages or brokers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence


class IdleTasks:
    """Tasks that wait for work; the one that has waited longest is woken first."""

    def __init__(self) -> None:
        self._futures: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until `wake` reaches this task."""
        future = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        await future

    def wake(self, count: int) -> None:
        """Wake up to `count` tasks."""
        futures = self._futures
        while count > 0 and futures:
            future = futures.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until the event is set or the timeout has passed; None waits without a limit."""
    if timeout_s is None:
        await event.wait()
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


async def cancel_all(tasks: Sequence[asyncio.Task[None]], timeout_s: float) -> None:
    """Cancel the tasks and wait for them to end, for `timeout_s` at most."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


def is_cancellation(error: BaseException, task: asyncio.Task[None]) -> bool:
    """Whether `error` means that the task was cancelled, not that its handler raised it."""
    if isinstance(error, asyncio.CancelledError):
        return bool(task.cancelling())
    return isinstance(error, GeneratorExit) and not _is_running(task)


def _is_running(task: asyncio.Task[None]) -> bool:
    """Whether a task is running, rather than being closed together with its loop."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
