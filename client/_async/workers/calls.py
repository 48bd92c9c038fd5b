"""The life of a shift and its calls to the broker: fetch, begin, extend and settle.

Each shard has its own tasks, so that a shard that hangs does not hold up the others. A call that
fails is made again until the leases of its messages have ended. No call and no handler runs under
the lock. The subclass in `shift` runs the handlers.
"""

from __future__ import annotations

import logging
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from delaylog.client._async.concurrency import (
    Background,
    Condition,
    Event,
    RLock,
    Semaphore,
    Task,
    cancel,
    in_own_context,
    limited,
    result_of,
    spawn,
    wait_all,
    wait_event,
)
from delaylog.client.errors import NotReached
from delaylog.client.hooks import Around, Hooks
from delaylog.client.wire.times import span_ms
from delaylog.client.workers.consumer import FETCHING, SETTLING, Consumer
from delaylog.client.workers.failures import is_denial, is_refusal, wait_after
from delaylog.client.workers.leases import Held, Hold, KeyGate
from delaylog.client.workers.settlements import Settlement
from delaylog.client.workers.shift_base import ShiftBase

if TYPE_CHECKING:
    from delaylog.client._async.workers.ports import AsyncPort
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)

CALL_S: Final = 10.0
"""Timeout of a call of a task, which is then made again."""
CALLS_MAX: Final = 4
CANCEL_S: Final = 1.0
"""How long a stop waits for cancelled tasks."""
FLUSH_S: Final = 5.0
"""Timeout of the last settling calls, and of receives in progress, during a stop."""
EMPTY_S: Final = 0.02
"""Pause after an empty answer that came immediately."""

clock = time.monotonic


class SharedGate(KeyGate):
    """The gate, with its lock, that consumers of one topic and group share."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = RLock()


class AsyncCalls(ShiftBase):
    """Runs one consumer from `start` to `stop`, once. The lock also protects `startup`."""

    answer_s: ClassVar[float]
    """How long `stop` waits for receives before it cancels them and returns messages."""
    poll_ms_max: ClassVar[int]
    """The longest wait of a receive."""

    def __init__(
        self,
        consumer: Consumer,
        ports: Sequence[AsyncPort],
        *,
        gate: SharedGate,
        hooks: Hooks,
        end: Event,
    ) -> None:
        super().__init__(consumer, len(ports), gate=gate, hooks=hooks, end=end)
        self._ports = ports
        self._lock = lock = gate.lock
        self._ready = Condition(lock)
        self._room = [Condition(lock) for _ in ports]
        self._settle = [Condition(lock) for _ in ports]
        self._lease = [Condition(lock) for _ in ports]
        self._begin = [Condition(lock) for _ in ports]
        self._settled = Condition(lock)
        self._desk.on_ready = self._ready.notify
        self._desk.on_room = lambda port: self._room[port].notify()
        self._desk.on_settle = lambda port: self._settle[port].notify()
        self._desk.on_lease = lambda port: self._lease[port].notify()
        self._desk.on_begin = lambda port: self._begin[port].notify()
        self._begun: list[list[Held]] = [[] for _ in range(consumer.concurrency)]
        """The messages of each runner."""
        self._stopping = Event()
        self._flushing = False
        self._over = Event()
        """Who is to be notified of it looks under the lock before waiting."""
        self._lanes = [Semaphore(CALLS_MAX) for _ in ports]
        self._calls = Background()
        self._fetchers: list[Task[None]] = []
        self._keepers: list[Task[None]] = []
        self._runners: list[Task[None]] = []

    def start(self) -> None:
        """Start to fetch and handle messages."""
        self._report_started([port.name for port in self._ports])
        for place in range(self._consumer.concurrency):
            self._runners.append(self._start_runner(place))
        for port in range(len(self._ports)):
            self._fetchers.append(self._spawn("fetch", partial(self._fetch, port)))
            self._keepers += [
                self._spawn("settle", partial(self._settle_all, port)),
                self._spawn("lease", partial(self._extend_all, port)),
                self._spawn("begin", partial(self._begin_all, port)),
            ]

    def cut(self) -> None:
        """End all tasks at once, for a stop that is cancelled: all leases expire."""
        self._over.set()
        for task in (*self._fetchers, *self._runners, *self._keepers, *self._calls.tasks):
            task.cancel()

    async def stop(self, grace_s: float) -> None:
        """Stop fetching, return waiting messages, wait for handlers, then return theirs.

        Late handlers in tasks are cancelled; those in threads go on, and their results are ignored.
        """
        until_s = clock() + grace_s
        self._report_stopping(grace_s)
        with self._lock:
            self._stopping.set()
            for each in (self._ready, *self._room):
                each.notify_all()
        # A receive that is still waiting would lease the returned messages again.
        await wait_all(self._fetchers, self.answer_s)
        await cancel(self._fetchers, CANCEL_S)
        with self._lock:
            self._desk.give_back_waiting(clock())
        await wait_all(self._runners, max(0.0, until_s - clock()))
        late = [place for place, runner in enumerate(self._runners) if not runner.done()]
        if late:
            self._report_late(len(late), grace_s)
        with self._lock:
            abandoned = [held for place in late for held in self._desk.abandon(self._begun[place])]
        # Let the handlers end before another consumer can get their messages.
        deaf = await cancel([self._runners[place] for place in late], CANCEL_S)
        with self._lock:
            self._desk.give_back(abandoned, clock())
        if deaf:
            logger.error("%s: %d handlers cannot be cancelled", self._consumer.name, deaf)
        await wait_all(self._fetchers, FLUSH_S)
        await self._flush()
        self._over.set()
        with self._lock:
            for each in (*self._settle, *self._lease, *self._begin):
                each.notify_all()
        await cancel([*self._keepers, *self._calls.tasks], CANCEL_S)
        self._report_stopped()

    def _spawn(self, what: str, call: Callable[[], Awaitable[None]]) -> Task[None]:
        """Start a call that goes on until the shift stops. Its failure is a bug, and is logged."""

        async def run() -> None:
            try:
                await call()
            except Exception:
                logger.exception("%s: %s has ended", self._consumer.name, what)
                raise

        return spawn(run, f"delaylog {self._consumer.name} {what}")

    # Handling

    @abstractmethod
    def _start_runner(self, place: int) -> Task[None]:
        """Start what runs one handler after another."""

    @abstractmethod
    def _is_cancellation(self, error: BaseException, place: int) -> bool:
        """Whether an error means that the runner was cancelled, not that its handler raised it."""

    async def _inside(self, messages: list[LeasedMessage], argument: Any) -> None:
        """Call the handler inside the context managers of the hooks."""
        if not self._around:
            await self._consumer.handler(argument)
            return
        around = Around(self._hooks, messages)
        try:
            await self._consumer.handler(argument)
        except BaseException as error:
            around.leave(error)
            raise
        around.leave(None)

    async def _failed(
        self, place: int, batch: Sequence[Held], error: BaseException, seconds: float
    ) -> None:
        """Nack the messages of a failed handler. Raises again if the runner was cancelled."""
        delay_ms = None
        is_cancelled = self._is_cancellation(error, place)
        try:
            if not is_cancelled:
                delay_ms = await self._delay_after(place, batch, error, seconds)
        finally:
            with self._lock:
                self._desk.failed(batch, error, seconds, clock(), delay_ms=delay_ms)
        if is_cancelled:
            raise error
        self._end_if_requested(error)

    async def _delay_after(
        self, place: int, batch: Sequence[Held], error: BaseException, seconds: float
    ) -> int | None:
        """Report a failed handler, and return the delay that `on_error` asks for.

        Raises only the cancellation of the runner: the messages must be settled by who calls it.
        """
        try:
            if self._report_failed(batch, error, seconds):
                return await in_own_context(self._asked, place, batch, error)
        except BaseException as raised:
            if self._is_cancellation(raised, place):
                raise
            with suppress(Exception):
                logger.exception("%s: a failure could not be reported", self._consumer.name)
            self._end_if_requested(raised)
        return None

    async def _asked(self, place: int, batch: Sequence[Held], error: BaseException) -> int | None:
        """The delay that `on_error` returns; for a batch the shortest one."""
        on_error = self._consumer.on_error
        if on_error is None:
            return None
        wanted: list[int] = []
        for held in batch:
            try:
                said = await result_of(on_error(held.message, error))
                if said is not None:
                    wanted.append(max(0, span_ms("what on_error returns", said)))
            except BaseException as raised:
                if self._is_cancellation(raised, place):
                    raise
                # As for handlers: if the runner ended, its messages would never be settled.
                logger.exception("%s: on_error failed", self._consumer.name)
                self._end_if_requested(raised)
        return min(wanted, default=None)

    # Receives

    async def _fetch(self, number: int) -> None:
        """Fetch messages from one shard."""
        desk, outages = self._desk, self._outages[number]
        while True:
            with self._lock:
                while not self._stopping.is_set() and (n := desk.ask(number)) == 0:
                    await self._room[number].wait()
                if self._stopping.is_set():
                    return
                begin = desk.begin_at_once(n)
                acks = desk.acks_to_carry(number)
            asked_at_s = clock()
            try:
                # The first call does not wait, so that a connection is noticed at once.
                wait_ms = min(self._consumer.wait_ms, self.poll_ms_max) if outages.connected else 0
                messages = await self._receive(number, n, begin, acks, wait_ms)
            except Exception as error:
                failures = outages.failed(error, clock())
                with self._lock:
                    refused = self.startup.refused(number, error)
                if refused:
                    self._end.set()
                if is_denial(error):
                    return
                pause_s = wait_after(FETCHING, failures, random.random(), error)
                await wait_event(self._stopping, pause_s)
                continue
            outages.answered()
            self._report_receive(messages, clock() - asked_at_s)
            with self._lock:
                self.startup.answered(number)
                desk.take_in(number, messages, clock(), begin)
                if self._stopping.is_set():
                    desk.give_back_waiting(clock())
            if not messages and clock() - asked_at_s < EMPTY_S:
                await wait_event(self._stopping, EMPTY_S)

    async def _receive(
        self, number: int, n: int, begin: int | None, acks: Settlement | None, wait_ms: int
    ) -> Sequence[LeasedMessage]:
        """Receive up to `n` messages; pending acks are sent along, without a wait."""
        port, desk = self._ports[number], self._desk
        if acks is not None:
            began_s = clock()
            try:
                async with limited(CALL_S):
                    results, messages = await port.ack_and_receive(
                        acks.messages, max=n, begin=begin
                    )
            except BaseException as error:
                with self._lock:
                    if not desk.not_carried(acks, error, clock()):
                        raise
            else:
                with self._lock:
                    desk.settled(acks, results)
                    self._settled.notify_all()
                self._report_settled("ack", len(results), clock() - began_s)
                if messages:
                    return messages
        return await port.receive(max=n, wait_ms=wait_ms, begin=begin)

    # Calls about messages that are held

    async def _begin_all(self, number: int) -> None:
        """Begin attempts at the messages of one shard shortly before their handlers start."""
        desk, failures = self._desk, 0
        while not self._over.is_set():
            with self._lock:
                batch = desk.to_begin(number, clock())
                if not batch:
                    if not self._over.is_set():
                        await self._begin[number].wait()
                    continue
            began_s = clock()
            messages = [held.message for held in batch]
            try:
                async with limited(CALL_S):
                    results = await self._ports[number].settle(
                        "begin", messages, lease_ms=self._consumer.lease_ms
                    )
            except Exception as error:
                failures += 1
                with self._lock:
                    desk.not_begun(number)
                self._report_not_begun(error)
                pause_s = wait_after(SETTLING, failures, random.random(), error)
                await wait_event(self._over, pause_s)
                continue
            failures = 0
            took_s = clock() - began_s
            with self._lock:
                desk.begun(number, results, took_s)
            self._report_settled("begin", len(results), took_s)

    async def _settle_all(self, number: int) -> None:
        """Make the settling calls of one shard when they are due."""
        while not self._over.is_set():
            with self._lock:
                due = self._desk.settlements(number, clock(), everything=self._flushing)
                if not due and not self._over.is_set():
                    at_s = self._desk.settle_at_s(number)
                    await self._settle[number].wait(_left_s(at_s))
            for settlement in due:
                self._calls.begin(partial(self._settle_one, number, settlement))

    async def _settle_one(self, number: int, settlement: Settlement) -> None:
        """Make one settling call; retry it until it is answered or its leases have ended."""
        port, desk = self._ports[number], self._desk
        call, members = settlement.call
        messages = settlement.messages
        began_s = clock()
        while (left_s := settlement.until_s - clock()) > 0:
            try:
                async with self._lanes[number], limited(min(left_s, CALL_S)):
                    results = await port.settle(call, messages, **members)
            except Exception as error:
                if is_refusal(error):
                    with self._lock:
                        desk.refused(settlement, error)
                        self._settled.notify_all()
                    return
                settlement.attempts += 1
                settlement.maybe_done |= not isinstance(error, NotReached)
                pause_s = wait_after(SETTLING, settlement.attempts, random.random(), error)
                if await wait_event(self._over, pause_s):
                    return
                continue
            with self._lock:
                desk.settled(settlement, results)
                self._settled.notify_all()
            self._report_settled(str(settlement.verb), len(messages), clock() - began_s)
            return
        with self._lock:
            desk.given_up(settlement)
            self._settled.notify_all()

    async def _extend_all(self, number: int) -> None:
        """Extend the leases of one shard while their messages wait or are handled."""
        while not self._over.is_set():
            with self._lock:
                extensions = self._desk.extensions(number, clock())
                if not extensions and not self._over.is_set():
                    at_s = self._desk.lease_at_s(number)
                    await self._lease[number].wait(_left_s(at_s))
            for hold, asked in extensions:
                self._calls.begin(partial(self._extend_one, number, hold, asked))

    async def _extend_one(self, number: int, hold: Hold, asked: Sequence[Held]) -> None:
        messages = [held.message for held in asked]
        asked_at_s = clock()
        try:
            async with limited(min(max(0.0, hold.until_s - asked_at_s), CALL_S)):
                results = await self._ports[number].settle(
                    "extend", messages, lease_ms=self._consumer.lease_ms
                )
        except Exception as error:
            logger.warning("%s: a lease was not extended: %s", self._consumer.name, error)
            with self._lock:
                self._desk.not_extended(hold, clock())
                self._lease[number].notify()
            return
        with self._lock:
            self._desk.extended(hold, asked, results, asked_at_s)
            self._lease[number].notify()
        self._report_settled("extend", len(messages), clock() - asked_at_s)

    async def _flush(self) -> None:
        """Have the last settling calls made, and wait up to FLUSH_S for their answers."""
        with self._lock:
            self._flushing = True
            for each in self._settle:
                each.notify()
            if not await self._settled.wait_for(lambda: not self._desk.unsettled, FLUSH_S):
                logger.warning(
                    "%s: %d messages are not settled within %.0f s; they are delivered again",
                    self._consumer.name,
                    self._desk.unsettled,
                    FLUSH_S,
                )


def _left_s(at_s: float | None) -> float | None:
    return None if at_s is None else max(0.0, at_s - clock())
