"""ThreadShift: runs the handlers of one consumer in a pool of threads.

The handler threads take messages from the desk. No handler runs under the lock. A thread cannot be
stopped, so one more thread looks after the time limit of handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from delaylog.client._sync.concurrency import Task, in_own_context
from delaylog.client._sync.message import Message
from delaylog.client._sync.workers.calls import FLUSH_S, Calls, clock
from delaylog.client.handlers import HANDLED, TimeLimitExceeded
from delaylog.client.workers.consumer import is_coroutine_function
from delaylog.client.workers.leases import HeldState

# Upper bound of a stop, in addition to the grace period of handlers.
STOP_S: Final = 4 * FLUSH_S

OnError: TypeAlias = Callable[[Message, BaseException], timedelta | None]
"""It may return the time until redelivery."""


def check_handler(what: str, handler: Callable[..., Any]) -> None:
    """TypeError for a handler that is a coroutine function."""
    if is_coroutine_function(handler):
        raise TypeError(
            f"{what} is a coroutine function: write `def`, or use AsyncClient, whose handlers run "
            "in the event loop"
        )


class ThreadShift(Calls):
    """The handler threads of one consumer."""

    # A receive of a thread cannot be cancelled, so a stop waits for it and returns its messages.
    answer_s = 1.5
    poll_ms_max = 1_000

    def start(self) -> None:
        """Start to fetch and handle messages."""
        self._begun_at_s = [clock()] * self._consumer.concurrency
        super().start()
        if (limit_s := self._consumer.time_limit_s) is not None:
            self._keepers.append(self._spawn("limit", partial(self._watch_limit, limit_s)))

    def _start_runner(self, place: int) -> Task[None]:
        return self._spawn(f"handler {place}", partial(self._run, place))

    def _is_cancellation(self, error: BaseException, place: int) -> bool:  # noqa: ARG002
        return False

    def _run(self, place: int) -> None:
        """The loop of a handler thread."""
        consumer, desk, begun = self._consumer, self._desk, self._begun[place]
        now_s = ended_s = clock()
        while True:
            with self._lock:
                # One turn of the lock for the end of a batch and the start of the next one.
                if begun:
                    desk.batch_done(begun, ended_s - now_s, ended_s)
                    begun.clear()
                while not self._stopping.is_set() and not begun:
                    now_s = clock()
                    begun += desk.begin_batch(now_s)
                    self._begun_at_s[place] = now_s
                    if not begun:
                        self._ready.wait()
                if not begun:
                    return
            messages = [held.message for held in begun]
            try:
                argument = messages if consumer.batch else messages[0]
                HANDLED.set(tuple(messages))
                in_own_context(self._inside, messages, argument)
            except BaseException as error:
                # The thread must not end. `stop` raises a SystemExit or KeyboardInterrupt.
                self._failed(place, begun, error, clock() - now_s)
                with self._lock:
                    begun.clear()
            else:
                ended_s = clock()
                self._report_handled(messages, ended_s - now_s)
            HANDLED.set(())

    def _watch_limit(self, limit_s: float) -> None:
        """Fail the messages of handlers that are over their time limit. The handlers run on."""
        next_s = clock() + limit_s
        while not self._over.wait(max(0.0, next_s - clock())):
            with self._lock:
                now_s = clock()
                # A handler that begins meanwhile is late after the next wait, not before.
                first_s = now_s
                late = []
                for place, batch in enumerate(self._begun):
                    if any(held.state is HeldState.RUNNING for held in batch):
                        if self._begun_at_s[place] + limit_s <= now_s:
                            late.append((place, self._desk.abandon(batch)))
                        else:
                            first_s = min(first_s, self._begun_at_s[place])
                next_s = first_s + limit_s
            for place, abandoned in late:
                error, delay_ms = TimeLimitExceeded(limit_s), None
                if abandoned:
                    delay_ms = self._delay_after(place, abandoned, error, limit_s)
                with self._lock:
                    self._desk.abandoned_failed(abandoned, error, clock(), delay_ms=delay_ms)
