"""A handler in a context of its own, without a task of its own.

Context variables that a handler sets are seen by what it calls and by nobody else: not by the next
handler of the same runner. A task for each message would do that too, and costs ten times as much.
The one rule: the loop sees no difference, since all that the handler waits for is handed on as it
is.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, TypeVar

T = TypeVar("T")


def begin(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Awaitable[None] | None:
    """Call it in a copy of the current context, up to where it first waits.

    What is left to be awaited; None where it has ended. That way handlers that wait for nothing
    cost a few calls more, and no generator.
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


@types.coroutine
def _rest(context: Context, coroutine: Any, waited_for: Any) -> Generator[Any, Any, Any]:
    """Go on with it to its end, from what it waits for."""
    while True:
        step, given = coroutine.send, None
        try:
            given = yield waited_for
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:
            step, given = coroutine.throw, error
        # A failure knows this frame. Where the frame knew the failure, or the future that has it,
        # all would stay, and the message with them, until somebody collects garbage.
        waited_for = None
        try:
            waited_for = context.run(step, given)
        except StopIteration as done:
            return done.value
        finally:
            given = None


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
