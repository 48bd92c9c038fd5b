"""The calls of a worker about the messages of one consumer: begin, extend and settle, in threads.

Each shard has its own threads, so that a shard that hangs does not hold up the others. A call that
fails is made again until the leases of its messages have ended. No call runs under the lock.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from delaylog.client.errors import NotReached
from delaylog.client.hooks import Hooks
from delaylog.client.workers.backoff import SETTLING
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.failing import is_refusal, wait_after
from delaylog.client.workers.held import Held, Hold
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.settling import Settlement
from delaylog.client.workers.shift_base import ShiftBase

if TYPE_CHECKING:
    from delaylog.client._sync.workers.ports import Port

logger = logging.getLogger(__name__)

# Timeout of the last settling calls, and of receives in progress, during a stop.
FLUSH_S: Final = 5.0

clock = time.monotonic


class Calls(ShiftBase):
    """The calls of one consumer, as the base class of its shift."""

    def __init__(
        self,
        consumer: Consumer,
        ports: Sequence[Port],
        lock: threading.RLock,
        *,
        gate: KeyGate,
        hooks: Hooks,
        end: threading.Event,
    ) -> None:
        super().__init__(consumer, len(ports), gate=gate, hooks=hooks, end=end)
        self._ports = ports
        self._lock = lock
        self._settle = [threading.Condition(lock) for _ in ports]
        self._lease = [threading.Condition(lock) for _ in ports]
        self._begin = [threading.Condition(lock) for _ in ports]
        self._settled = threading.Condition(lock)
        self._desk.on_settle = lambda port: self._settle[port].notify()
        self._desk.on_lease = lambda port: self._lease[port].notify()
        self._desk.on_begin = lambda port: self._begin[port].notify()
        self._flushing = False
        self._over = threading.Event()

    def _begin_all(self, number: int) -> None:
        """Begin attempts at the messages of one shard shortly before their handlers start."""
        desk, failures = self._desk, 0
        while not self._over.is_set():
            with self._lock:
                batch = desk.to_begin(number, clock())
                if not batch:
                    self._begin[number].wait()
                    continue
            began_s = clock()
            try:
                results = self._ports[number].settle(
                    "begin", [held.message for held in batch], lease_ms=self._consumer.lease_ms
                )
            except Exception as error:
                failures += 1
                with self._lock:
                    desk.not_begun(number)
                self._report_not_begun(error)
                self._over.wait(wait_after(SETTLING, failures, random.random(), error))
                continue
            failures = 0
            took_s = clock() - began_s
            with self._lock:
                desk.begun(number, results, took_s)
            self._report_settled("begin", len(results), took_s)

    def _settle_all(self, number: int) -> None:
        """Make the settling calls of one shard when they are due."""
        while not self._over.is_set():
            with self._lock:
                due = self._desk.settlements(number, clock(), everything=self._flushing)
                if not due:
                    _wait(self._settle[number], self._desk.settle_at_s(number))
            for settlement in due:
                self._settle_one(number, settlement)

    def _settle_one(self, number: int, settlement: Settlement) -> None:
        """Make one settling call; retry it until it is answered or its leases have ended."""
        port, desk = self._ports[number], self._desk
        call, members = settlement.call
        messages = settlement.messages
        began_s = clock()
        while clock() < settlement.until_s:
            try:
                results = port.settle(call, messages, **members)
            except Exception as error:
                if is_refusal(error):
                    with self._settled:
                        desk.refused(settlement, error)
                        self._settled.notify_all()
                    return
                settlement.attempts += 1
                settlement.maybe_done |= not isinstance(error, NotReached)
                wait_s = wait_after(SETTLING, settlement.attempts, random.random(), error)
                if self._over.wait(wait_s):
                    return
                continue
            with self._settled:
                desk.settled(settlement, results)
                self._settled.notify_all()
            self._report_settled(str(settlement.verb), len(messages), clock() - began_s)
            return
        with self._settled:
            desk.given_up(settlement)
            self._settled.notify_all()

    def _extend_all(self, number: int) -> None:
        """Extend the leases of one shard while their messages wait or are handled."""
        while not self._over.is_set():
            with self._lock:
                extensions = self._desk.extensions(number, clock())
                if not extensions:
                    _wait(self._lease[number], self._desk.lease_at_s(number))
            for hold, asked in extensions:
                self._extend_one(number, hold, asked)

    def _extend_one(self, number: int, hold: Hold, asked: Sequence[Held]) -> None:
        messages = [held.message for held in asked]
        asked_at_s = clock()
        try:
            results = self._ports[number].settle(
                "extend", messages, lease_ms=self._consumer.lease_ms
            )
        except Exception as error:
            logger.warning("%s: a lease was not extended: %s", self._consumer.name, error)
            with self._lock:
                self._desk.not_extended(hold, clock())
            return
        with self._lock:
            self._desk.extended(hold, asked, results, asked_at_s)
        self._report_settled("extend", len(messages), clock() - asked_at_s)

    def _flush(self) -> None:
        """Have the last settling calls made, and wait up to FLUSH_S for their answers."""
        with self._lock:
            self._flushing = True
            for each in self._settle:
                each.notify()
            if not self._settled.wait_for(lambda: not self._desk.unsettled, FLUSH_S):
                logger.warning(
                    "%s: %d messages are not settled within %.0f s; they are delivered again",
                    self._consumer.name,
                    self._desk.unsettled,
                    FLUSH_S,
                )


def _wait(condition: threading.Condition, until_s: float | None) -> None:
    condition.wait(None if until_s is None else max(0.0, until_s - clock()))
