"""AsyncShift: runs the handlers of one consumer in an event loop.

N runner tasks take messages from the desk; there is no task per message. A handler cannot stop
other handlers or the shutdown, unless it blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.workers.calls import CANCEL_S, FLUSH_S, AsyncCalls, clock
from delaylog.client.handlers import HANDLED
from delaylog.client.workers.consumer import is_coroutine_function
from delaylog.client.workers.contexts import begin, in_own_context, is_cancellation, within
from delaylog.client.workers.leases import HeldState

logger = logging.getLogger(__name__)

# All handlers together yield to the event loop after this time, even if they never await.
TURN_S: Final = 0.002
# Limit of a stop beyond the grace period.
STOP_S: Final = FLUSH_S + 4 * CANCEL_S

OnError: TypeAlias = Callable[
    [AsyncMessage, BaseException], timedelta | Awaitable[timedelta | None] | None
]
"""It may return the time until redelivery."""


def check_handler(what: str, handler: Callable[..., Any]) -> None:
    """TypeError for a handler that is not a coroutine function."""
    if not is_coroutine_function(handler):
        raise TypeError(
            f"{what} is not a coroutine function: write `async def`, or use Client, whose "
            "handlers run in threads"
        )


class AsyncShift(AsyncCalls):
    """The runners of one consumer."""

    # A cancelled receive may have leased messages. If messages are ready, the answer comes at once.
    answer_s = 0.25
    poll_ms_max = sys.maxsize

    def _start_runner(self, place: int) -> asyncio.Task[None]:
        run = self._run_batches if self._consumer.batch else self._run
        name = f"delaylog {self._consumer.name} runner {place}"
        runner = asyncio.create_task(run(place), name=name)
        runner.add_done_callback(partial(self._runner_ended, place))
        return runner

    def _runner_ended(self, place: int, runner: asyncio.Task[None]) -> None:
        """Replace a runner whose task was cancelled by its handler, or has failed."""
        begun, self._begun[place] = self._begun[place], []
        error = None if runner.cancelled() else runner.exception()
        if error is not None:
            logger.error("%s: a runner has failed", self._consumer.name, exc_info=error)
            # Otherwise their leases would be extended as long as the worker runs.
            left = [held for held in begun if held.state is HeldState.RUNNING]
            self._desk.failed(left, error, 0.0, clock())
        # If all tasks are cancelled, the loop is ending and no runner must be replaced.
        ending = any(each.done() or each.cancelling() for each in self._fetchers)
        if self._stopping.is_set() or ending:
            return
        if error is None:
            logger.warning("%s: a handler cancelled the task it ran in", self._consumer.name)
        self._runners[place] = self._start_runner(place)

    def _is_cancellation(self, error: BaseException, place: int) -> bool:
        return is_cancellation(error, self._runners[place])

    async def _run(self, place: int) -> None:
        """A runner for handlers that take one message."""
        consumer, desk, on_handled = self._consumer, self._desk, self._on_handled
        handler, around, limit_s = consumer.handler, self._around, consumer.time_limit_s
        mine = self._begun[place]
        share_s = TURN_S / consumer.concurrency
        now_s = turned_at_s = clock()
        while not self._stopping.is_set():
            held = desk.begin(now_s)
            if held is None:
                # What was handled last is freed now, as it costs less than after each message.
                mine.clear()
                HANDLED.set(())
                await self._ready.wait()
                now_s = turned_at_s = clock()
                continue
            mine[:] = (held,)
            HANDLED.set((held.message,))
            try:
                if around:
                    rest = begin(self._inside, [held.message], held.message)
                else:
                    rest = begin(handler, held.message)
                if rest is not None:
                    await (rest if limit_s is None else within(limit_s, rest))
            except BaseException as error:
                # `_failed` raises a cancellation of the runner again.
                await self._failed(place, mine, error, clock() - now_s)
                now_s = clock()
            else:
                ended_s = clock()
                desk.done(held, ended_s - now_s, ended_s)
                if on_handled:
                    on_handled(held.message, ended_s - now_s)
                now_s = ended_s
            if now_s - turned_at_s > share_s:
                await asyncio.sleep(0)
                now_s = turned_at_s = clock()

    async def _run_batches(self, place: int) -> None:
        """A runner for handlers that take lists."""
        desk, limit_s = self._desk, self._consumer.time_limit_s
        while not self._stopping.is_set():
            now_s = clock()
            batch = desk.begin_batch(now_s)
            if not batch:
                await self._ready.wait()
                continue
            self._begun[place] = batch
            messages = [held.message for held in batch]
            try:
                HANDLED.set(tuple(messages))
                await within(limit_s, in_own_context(self._inside, messages, messages))
            except BaseException as error:
                await self._failed(place, batch, error, clock() - now_s)
            else:
                ended_s = clock()
                desk.batch_done(batch, ended_s - now_s, ended_s)
                self._report_handled(messages, ended_s - now_s)
            self._begun[place] = []
            HANDLED.set(())
            await asyncio.sleep(0)
