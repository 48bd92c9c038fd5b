"""AsyncShift: runs one consumer in an event loop.

N runner tasks take messages from the desk. For each shard, a fetcher, a settler and an extender
task call the broker. There is no task per message. A handler cannot stop other handlers or the
shutdown, unless it blocks the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.workers.calls import CALL_S, FLUSH_S, AsyncCalls, clock
from delaylog.client.holding import HANDLED
from delaylog.client.hooks import Around, Hooks
from delaylog.client.workers.backoff import FETCHING
from delaylog.client.workers.consumer import Consumer, is_coroutine_function
from delaylog.client.workers.contexts import begin, in_own_context, this_task, within
from delaylog.client.workers.failing import is_denial, wait_after
from delaylog.client.workers.held import Held
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.tasks import IdleTasks, cancel_all, is_cancellation

if TYPE_CHECKING:
    from delaylog.client._async.workers.ports import AsyncPort
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)

# All handlers together yield to the event loop after this time, even if they never await.
TURN_S: Final = 0.002
# How long `stop` waits for receives before it cancels them: a cancelled receive may have leased
# messages. If messages are ready, the answer comes at once.
ANSWER_S: Final = 0.25
# Limits of a stop beyond the grace period: for cancelled tasks, for the last calls, and in all.
CANCEL_S: Final = 1.0
STOP_S: Final = FLUSH_S + 4 * CANCEL_S
# Pause after an empty answer that came immediately.
EMPTY_S: Final = 0.02

OnError: TypeAlias = Callable[[AsyncMessage, BaseException], float | Awaitable[float | None] | None]
"""It may return the milliseconds until redelivery."""

SharedGate = KeyGate
"""The gate that consumers of one topic and group share."""


def check_handler(what: str, handler: Callable[..., Any]) -> None:
    """TypeError for a handler that is not a coroutine function."""
    if not is_coroutine_function(handler):
        raise TypeError(
            f"{what} is not a coroutine function: write `async def`, or use Client, whose "
            "handlers run in threads"
        )


class AsyncShift(AsyncCalls):
    """Runs from `start` to `stop`. A shift cannot be started again."""

    def __init__(
        self,
        consumer: Consumer,
        ports: Sequence[AsyncPort],
        *,
        gate: SharedGate,
        hooks: Hooks,
        end: asyncio.Event,
    ) -> None:
        super().__init__(consumer, ports, gate=gate, hooks=hooks, end=end)
        self._room = [asyncio.Event() for _ in ports]
        self._idle = IdleTasks()
        self._desk.on_ready = self._idle.wake
        self._desk.on_room = lambda port: self._room[port].set()
        self._begun: dict[asyncio.Task[None], list[Held]] = {}
        self._stopping = False
        self._fetchers: list[asyncio.Task[None]] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._runners: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to fetch and handle messages."""
        self._report_started([port.name for port in self._ports])
        name = f"delaylog {self._consumer.name}"
        for number in range(self._consumer.concurrency):
            self._start_runner(f"{name} runner {number}")
        for port in range(len(self._ports)):
            self._fetchers.append(asyncio.create_task(self._fetch(port), name=f"{name} fetch"))
            self._keepers.append(asyncio.create_task(self._settle_all(port), name=f"{name} settle"))
            self._keepers.append(asyncio.create_task(self._extend_all(port), name=f"{name} lease"))
            self._keepers.append(asyncio.create_task(self._begin_all(port), name=f"{name} begin"))

    async def stop(self, grace_s: float) -> None:
        """Stop fetching, return waiting messages, await handlers, then return theirs."""
        self._stopping = True
        self._report_stopping(grace_s)
        for room in self._room:
            room.set()
        await asyncio.wait(self._fetchers, timeout=ANSWER_S)
        await cancel_all(self._fetchers, CANCEL_S)
        self._desk.give_back_waiting(clock())
        self._idle.wake(len(self._runners))
        _, late = await asyncio.wait(self._runners, timeout=grace_s)
        if late:
            self._report_late(len(late), grace_s)
            abandoned: list[Held] = []
            for task in late:
                abandoned += self._desk.abandon(self._begun.get(task, ()))
                task.cancel()
            # Let the handlers end before another consumer can get their messages.
            _, deaf = await asyncio.wait(late, timeout=CANCEL_S)
            self._desk.give_back(abandoned, clock())
            if deaf:
                logger.error("%s: %d handlers cannot be cancelled", self._consumer.name, len(deaf))
        await self._flush()
        await cancel_all([*self._keepers, *self._calls], CANCEL_S)
        self._report_stopped()

    # Handling

    def _start_runner(self, name: str) -> None:
        run = self._run_batches if self._consumer.batch else self._run
        runner = asyncio.create_task(run(), name=name)
        self._runners.append(runner)
        runner.add_done_callback(self._runner_ended)

    def _runner_ended(self, runner: asyncio.Task[None]) -> None:
        """Replace a runner whose task was cancelled by its handler."""
        self._begun.pop(runner, None)
        # If all tasks are cancelled, the loop is ending and no runner must be replaced.
        if self._stopping or any(each.done() or each.cancelling() for each in self._fetchers):
            return
        logger.warning("%s: a handler cancelled the task it ran in", self._consumer.name)
        self._runners.remove(runner)
        self._start_runner(runner.get_name())

    async def _run(self) -> None:
        """A runner for handlers that take one message."""
        consumer, desk, on_handled = self._consumer, self._desk, self._on_handled
        handler, around, limit_s = consumer.handler, self._around, consumer.time_limit_s
        task = this_task()
        mine: list[Held] = []
        self._begun[task] = mine
        share_s = TURN_S / consumer.concurrency
        now_s = turned_at_s = clock()
        while not self._stopping:
            held = desk.begin(now_s)
            if held is None:
                # What was handled last is freed now, as it costs less than after each message.
                mine.clear()
                HANDLED.set(())
                await self._idle.wait()
                now_s = turned_at_s = clock()
                continue
            mine[:] = (held,)
            HANDLED.set((held.message,))
            try:
                if around:
                    rest = begin(self._inside, mine, held.message)
                else:
                    rest = begin(handler, held.message)
                if rest is not None:
                    await (rest if limit_s is None else within(limit_s, rest))
            except BaseException as error:
                # `_failed` raises a cancellation of the runner again.
                await self._failed(mine, error, clock() - now_s, task)
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

    async def _run_batches(self) -> None:
        """A runner for handlers that take lists."""
        desk, limit_s = self._desk, self._consumer.time_limit_s
        task = this_task()
        while not self._stopping:
            now_s = clock()
            batch = desk.begin_batch(now_s)
            if not batch:
                await self._idle.wait()
                continue
            self._begun[task] = batch
            messages = [held.message for held in batch]
            try:
                HANDLED.set(tuple(messages))
                await within(limit_s, in_own_context(self._inside, batch, messages))
            except BaseException as error:
                await self._failed(batch, error, clock() - now_s, task)
            else:
                ended_s = clock()
                desk.batch_done(batch, ended_s - now_s, ended_s)
                self._report_handled(messages, ended_s - now_s)
            self._begun[task] = []
            HANDLED.set(())
            await asyncio.sleep(0)

    async def _inside(self, batch: Sequence[Held], argument: Any) -> None:
        """Call the handler inside the context managers of the hooks."""
        if not self._around:
            await self._consumer.handler(argument)
            return
        around = Around(self._hooks, [held.message for held in batch])
        try:
            await self._consumer.handler(argument)
        except BaseException as error:
            around.leave(error)
            raise
        around.leave(None)

    async def _failed(
        self,
        batch: Sequence[Held],
        error: BaseException,
        seconds: float,
        task: asyncio.Task[None],
    ) -> None:
        """Nack the messages of a failed handler. Raises again if the runner was cancelled."""
        if is_cancellation(error, task):
            self._desk.failed(batch, error, seconds, clock())
            raise error
        delay_ms = None
        if self._report_failed(batch, error, seconds):
            delay_ms = await in_own_context(self._asked, batch, error, task)
        self._desk.failed(batch, error, seconds, clock(), delay_ms=delay_ms)
        self._end_if_requested(error)

    async def _asked(
        self, batch: Sequence[Held], error: BaseException, task: asyncio.Task[None]
    ) -> int | None:
        """The delay that `on_error` returns; for a batch the shortest one."""
        on_error = self._consumer.on_error
        if on_error is None:
            return None
        wanted: list[int] = []
        for held in batch:
            try:
                said = on_error(held.message, error)
                if inspect.isawaitable(said):
                    said = await said
                if said is not None:
                    wanted.append(max(0, int(said)))
            except BaseException as raised:
                if is_cancellation(raised, task):
                    raise
                # As for handlers: if the runner ended, its messages would never be settled.
                logger.exception("%s: on_error failed", self._consumer.name)
                self._end_if_requested(raised)
        return min(wanted, default=None)

    # The broker

    async def _fetch(self, number: int) -> None:
        """Fetch messages from one shard."""
        outages = self._outages[number]
        while not self._stopping:
            n = self._desk.ask(number)
            if n == 0:
                self._room[number].clear()
                await self._room[number].wait()
                continue
            asked_at_s = clock()
            try:
                # The first call does not wait, so that a connection is noticed at once.
                wait_ms = self._consumer.wait_ms if outages.connected else 0
                begin = self._desk.begin_at_once(n)
                messages = await self._receive(number, n, begin, wait_ms)
            except Exception as error:
                failures = outages.failed(error, clock())
                if self.startup.refused(number, error):
                    self._end.set()
                if is_denial(error):
                    return
                await asyncio.sleep(wait_after(FETCHING, failures, random.random(), error))
                continue
            outages.answered()
            self.startup.answered(number)
            self._report_receive(messages, clock() - asked_at_s)
            self._desk.take_in(number, messages, clock(), begin)
            if not messages and clock() - asked_at_s < EMPTY_S:
                await asyncio.sleep(EMPTY_S)

    async def _receive(
        self, number: int, n: int, begin: int | None, wait_ms: int
    ) -> Sequence[LeasedMessage]:
        """Receive up to `n` messages; pending acks are sent along, without a wait."""
        port, desk = self._ports[number], self._desk
        acks = desk.acks_to_carry(number)
        if acks is not None:
            began_s = clock()
            try:
                async with asyncio.timeout(CALL_S):
                    results, messages = await port.ack_and_receive(
                        acks.messages, max=n, begin=begin
                    )
            except BaseException as error:
                if not desk.not_carried(acks, error, clock()):
                    raise
            else:
                desk.settled(acks, results)
                self._report_settled("ack", len(results), clock() - began_s)
                if messages:
                    return messages
        return await port.receive(max=n, wait_ms=wait_ms, begin=begin)
