"""Runs a handler in its own context, without its own task, and within its time limit.

Context variables that a handler sets are visible to the functions it calls, but not to the next
handler of the same runner. A task per message would have the same effect at ten times the cost. The
event loop sees no difference, since every future that the handler awaits is passed on unchanged.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, TypeVar

from delaylog.client.handlers import TimeLimitExceeded

T = TypeVar("T")


def begin(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Awaitable[None] | None:
    """Call `function` in a copy of the current context, up to its first suspension.

    Returns an awaitable for the rest, or None if the function has ended. So a handler that never
    suspends costs a few extra calls, but no generator.
    """
    context = copy_context()
    run = context.run
    coroutine: Any = run(function, *arguments)
    if type(coroutine) is not CoroutineType:
        coroutine = _awaited(coroutine)
    try:
        waited_for = run(coroutine.send, None)
    except StopIteration:
        return None
    return _rest(context, coroutine, waited_for)


@types.coroutine
def in_own_context(
    function: Callable[..., Awaitable[T]], *arguments: Any
) -> Generator[Any, Any, T]:
    """Await `function(*arguments)` in a copy of the current context."""
    context = copy_context()
    coroutine = _awaited(context.run(function, *arguments))
    try:
        waited_for = context.run(coroutine.send, None)
    except StopIteration as done:
        result: T = done.value
        return result
    rest = _rest(context, coroutine, waited_for)
    waited_for = None
    result = yield from rest
    return result


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


async def within(limit_s: float | None, handling: Awaitable[None]) -> None:
    """Await a handler. Raises TimeLimitExceeded if it was cancelled at its time limit."""
    timeout = asyncio.timeout(limit_s)
    try:
        async with timeout:
            await handling
    except TimeoutError as error:
        if timeout.expired() and limit_s is not None:
            raise TimeLimitExceeded(limit_s) from error
        raise
    if timeout.expired() and limit_s is not None:
        # It has caught its cancellation.
        raise TimeLimitExceeded(limit_s)


@types.coroutine
def _rest(context: Context, coroutine: Any, waited_for: Any) -> Generator[Any, Any, Any]:
    """Drive the coroutine to its end, starting with the future that it awaits."""
    while True:
        step, given = coroutine.send, None
        try:
            given = yield waited_for
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:
            step, given = coroutine.throw, error
        # An exception refers to this frame. If the frame also referred to the exception, or to its
        # future, the cycle would keep the message alive until the garbage collector runs.
        waited_for = None
        try:
            waited_for = context.run(step, given)
        except StopIteration as done:
            return done.value
        finally:
            given = None


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
