"""ThreadShift: runs one consumer with threads.

A pool of handler threads takes messages from the desk. For each shard, a fetcher, a settler and an
extender thread call the broker, so that a shard that hangs does not block the others. No call and
no handler runs under the lock.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delaylog.client._sync.message import Message
from delaylog.client._sync.workers.calls import FLUSH_S, Calls, clock
from delaylog.client.holding import HANDLED
from delaylog.client.hooks import Around, Hooks
from delaylog.client.outcomes import TimeLimitExceeded
from delaylog.client.workers.backoff import FETCHING
from delaylog.client.workers.consumer import Consumer, is_coroutine_function
from delaylog.client.workers.failing import is_denial, wait_after
from delaylog.client.workers.held import Held, HeldState
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.settling import Settlement

if TYPE_CHECKING:
    from delaylog.client._sync.workers.ports import Port
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)

# Longest wait of a receive: it cannot be cancelled, so a stop waits for it and returns its
# messages.
POLL_MS_MAX: Final = 1_000
# How long a stop waits for receives before it returns messages.
ANSWER_S: Final = POLL_MS_MAX / 1000 + 0.5
# Upper bound of a stop, in addition to the grace period of handlers.
STOP_S: Final = 4 * FLUSH_S
EMPTY_S: Final = 0.02

OnError: TypeAlias = Callable[[Message, BaseException], float | None]
"""It may return the milliseconds until redelivery."""


class SharedGate(KeyGate):
    """The gate, with its lock, that consumers of one topic and group share."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()


def check_handler(what: str, handler: Callable[..., Any]) -> None:
    """TypeError for a handler that is a coroutine function."""
    if is_coroutine_function(handler):
        raise TypeError(
            f"{what} is a coroutine function: write `def`, or use AsyncClient, whose handlers run "
            "in the event loop"
        )


class ThreadShift(Calls):
    """Runs from `start` to `stop`, once. The lock also protects `startup`."""

    def __init__(
        self,
        consumer: Consumer,
        ports: Sequence[Port],
        *,
        gate: SharedGate,
        hooks: Hooks,
        end: threading.Event,
    ) -> None:
        lock = gate.lock
        super().__init__(consumer, ports, lock, gate=gate, hooks=hooks, end=end)
        self._ready = threading.Condition(lock)
        self._room = [threading.Condition(lock) for _ in ports]
        self._limit = threading.Condition(lock)
        self._desk.on_ready = self._ready.notify
        self._desk.on_room = lambda port: self._room[port].notify()
        self._begun: dict[threading.Thread, list[Held]] = {}
        self._begun_at_s: dict[threading.Thread, float] = {}
        self._stopping = threading.Event()
        self._handlers: list[threading.Thread] = []
        self._fetchers: list[threading.Thread] = []

    def start(self) -> None:
        """Start to fetch and handle messages."""
        self._report_started([port.name for port in self._ports])
        name = f"delaylog {self._consumer.name}"
        if self._consumer.time_limit_s is not None:
            _thread(self._watch_limit, self._consumer.time_limit_s, name=f"{name} limit")
        for number in range(self._consumer.concurrency):
            self._handlers.append(_thread(self._run, name=f"{name} handler {number}"))
        for port in range(len(self._ports)):
            self._fetchers.append(_thread(self._fetch, port, name=f"{name} fetch"))
            _thread(self._settle_all, port, name=f"{name} settle")
            _thread(self._extend_all, port, name=f"{name} lease")
            _thread(self._begin_all, port, name=f"{name} begin")

    def stop(self, grace_s: float) -> None:
        """Stop fetching, return waiting messages, and wait for handlers.

        Late handlers continue in daemon threads; their results are ignored.
        """
        until_s = clock() + grace_s
        self._report_stopping(grace_s)
        with self._lock:
            self._stopping.set()
            self._ready.notify_all()
            for room in self._room:
                room.notify()
        # A receive that is still waiting would lease the returned messages again.
        _join(self._fetchers, ANSWER_S)
        with self._lock:
            self._desk.give_back_waiting(clock())
        late = _join(self._handlers, max(0.0, until_s - clock()))
        if late:
            self._report_late(len(late), grace_s)
        with self._lock:
            for thread in late:
                abandoned = self._desk.abandon(self._begun.get(thread, ()))
                self._desk.give_back(abandoned, clock())
        _join(self._fetchers, FLUSH_S)
        self._flush()
        self._over.set()
        with self._lock:
            for each in (*self._settle, *self._lease, *self._begin, self._limit):
                each.notify()
        self._report_stopped()

    # Handling

    def _run(self) -> None:
        """The loop of a handler thread."""
        consumer, desk = self._consumer, self._desk
        begun: list[Held] = []
        thread = threading.current_thread()
        with self._lock:
            self._begun[thread] = begun
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
                    self._begun_at_s[thread] = now_s
                    if not begun:
                        self._ready.wait()
                if not begun:
                    return
            messages = [held.message for held in begun]
            try:
                argument = messages if consumer.batch else messages[0]
                HANDLED.set(tuple(messages))
                copy_context().run(self._inside, messages, argument)
            except BaseException as error:
                # The thread must not end. `stop` raises a SystemExit or KeyboardInterrupt.
                self._failed(begun, error, clock() - now_s)
                with self._lock:
                    begun.clear()
            else:
                ended_s = clock()
                self._report_handled(messages, ended_s - now_s)
            HANDLED.set(())

    def _watch_limit(self, limit_s: float) -> None:
        """Fail the messages of handlers that are over their time limit. The handlers run on."""
        while not self._over.is_set():
            with self._lock:
                now_s = clock()
                running = [
                    (self._begun_at_s[thread], batch)
                    for thread, batch in self._begun.items()
                    if any(held.state is HeldState.RUNNING for held in batch)
                ]
                over = [batch for begun_at_s, batch in running if begun_at_s + limit_s <= now_s]
                late = [abandoned for batch in over if (abandoned := self._desk.abandon(batch))]
                if not over:
                    # A handler that begins meanwhile is late after this wait, not before.
                    first_s = min((begun_at_s for begun_at_s, _ in running), default=now_s)
                    self._limit.wait(first_s + limit_s - now_s)
            for abandoned in late:
                error, delay_ms = TimeLimitExceeded(limit_s), None
                if self._report_failed(abandoned, error, limit_s):
                    delay_ms = copy_context().run(self._asked, abandoned, error)
                with self._lock:
                    self._desk.abandoned_failed(abandoned, error, clock(), delay_ms=delay_ms)

    def _inside(self, messages: list[Any], argument: Any) -> None:
        """Call the handler inside the context managers of the hooks."""
        if not self._around:
            self._consumer.handler(argument)
            return
        around = Around(self._hooks, messages)
        try:
            self._consumer.handler(argument)
        except BaseException as error:
            around.leave(error)
            raise
        around.leave(None)

    def _failed(self, batch: Sequence[Held], error: BaseException, seconds: float) -> None:
        delay_ms = None
        if self._report_failed(batch, error, seconds):
            delay_ms = copy_context().run(self._asked, batch, error)
        with self._lock:
            self._desk.failed(batch, error, seconds, clock(), delay_ms=delay_ms)
        self._end_if_requested(error)

    def _asked(self, batch: Sequence[Held], error: BaseException) -> int | None:
        """The delay that `on_error` returns; for a batch the shortest one."""
        on_error = self._consumer.on_error
        if on_error is None:
            return None
        wanted: list[int] = []
        for held in batch:
            try:
                said = on_error(held.message, error)
                if said is not None:
                    wanted.append(max(0, int(said)))
            except BaseException as raised:
                # As for handlers: if the thread ended, its messages would never be settled.
                logger.exception("%s: on_error failed", self._consumer.name)
                self._end_if_requested(raised)
        return min(wanted, default=None)

    # The broker

    def _fetch(self, number: int) -> None:
        """Fetch messages from one shard."""
        desk = self._desk
        outages = self._outages[number]
        while True:
            with self._lock:
                while not self._stopping.is_set() and (n := desk.ask(number)) == 0:
                    self._room[number].wait()
                if self._stopping.is_set():
                    return
                begin = desk.begin_at_once(n)
                acks = desk.acks_to_carry(number)
            asked_at_s = clock()
            try:
                # The first call does not wait, so that a connection is noticed at once.
                wait_ms = min(self._consumer.wait_ms, POLL_MS_MAX) if outages.connected else 0
                messages = self._receive(number, n, begin, acks, wait_ms)
            except Exception as error:
                failures = outages.failed(error, clock())
                with self._lock:
                    refused = self.startup.refused(number, error)
                if refused:
                    self._end.set()
                if is_denial(error):
                    return
                self._stopping.wait(wait_after(FETCHING, failures, random.random(), error))
                continue
            outages.answered()
            self._report_receive(messages, clock() - asked_at_s)
            with self._lock:
                self.startup.answered(number)
                desk.take_in(number, messages, clock(), begin)
                if self._stopping.is_set():
                    desk.give_back_waiting(clock())
            if not messages and clock() - asked_at_s < EMPTY_S:
                self._stopping.wait(EMPTY_S)

    def _receive(
        self, number: int, n: int, begin: int | None, acks: Settlement | None, wait_ms: int
    ) -> Sequence[LeasedMessage]:
        """Receive up to `n` messages; pending acks are sent along, without a wait."""
        port, desk = self._ports[number], self._desk
        if acks is not None:
            began_s = clock()
            try:
                results, messages = port.ack_and_receive(acks.messages, max=n, begin=begin)
            except BaseException as error:
                with self._lock:
                    if not desk.not_carried(acks, error, clock()):
                        raise
            else:
                with self._settled:
                    desk.settled(acks, results)
                    self._settled.notify_all()
                self._report_settled("ack", len(results), clock() - began_s)
                if messages:
                    return messages
        return port.receive(max=n, wait_ms=wait_ms, begin=begin)


def _thread(target: Callable[..., None], *arguments: object, name: str) -> threading.Thread:
    # Daemon threads: a handler that never ends must not keep the interpreter alive.
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> list[threading.Thread]:
    """Join threads with a common timeout. Returns those that are still alive."""
    until_s = clock() + timeout_s
    for thread in threads:
        thread.join(max(0.0, until_s - clock()))
    return [thread for thread in threads if thread.is_alive()]
