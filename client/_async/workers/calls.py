"""The calls of a worker about the messages of one consumer: begin, extend and settle, in tasks.

Each shard has its own tasks, so that a shard that hangs does not hold up the others. A call that
fails is made again until the leases of its messages have ended.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from delaylog.client.errors import NotReached
from delaylog.client.hooks import Hooks
from delaylog.client.workers.backoff import SETTLING
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.failing import is_refusal, wait_after
from delaylog.client.workers.held import Held, Hold
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.settling import Settlement
from delaylog.client.workers.shift_base import ShiftBase
from delaylog.client.workers.tasks import wait_for_event

if TYPE_CHECKING:
    from delaylog.client._async.workers.ports import AsyncPort

logger = logging.getLogger(__name__)

# Timeout of a call, which is then retried.
CALL_S: Final = 10.0
CALLS_MAX: Final = 4
# Limit of a stop for the last calls.
FLUSH_S: Final = 5.0

clock = time.monotonic


class AsyncCalls(ShiftBase):
    """The calls of one consumer, as the base class of its shift."""

    def __init__(
        self,
        consumer: Consumer,
        ports: Sequence[AsyncPort],
        *,
        gate: KeyGate,
        hooks: Hooks,
        end: asyncio.Event,
    ) -> None:
        super().__init__(consumer, len(ports), gate=gate, hooks=hooks, end=end)
        self._ports = ports
        self._settle = [asyncio.Event() for _ in ports]
        self._lease = [asyncio.Event() for _ in ports]
        self._begin = [asyncio.Event() for _ in ports]
        self._desk.on_settle = lambda port: self._settle[port].set()
        self._desk.on_lease = lambda port: self._lease[port].set()
        self._desk.on_begin = lambda port: self._begin[port].set()
        self._calls: set[asyncio.Task[None]] = set()
        self._lanes = [asyncio.Semaphore(CALLS_MAX) for _ in ports]

    async def _begin_all(self, number: int) -> None:
        """Begin attempts at the messages of one shard shortly before their handlers start."""
        desk, signal, failures = self._desk, self._begin[number], 0
        while True:
            batch = desk.to_begin(number, clock())
            if not batch:
                signal.clear()
                await signal.wait()
                continue
            began_s = clock()
            try:
                async with asyncio.timeout(CALL_S):
                    results = await self._ports[number].settle(
                        "begin",
                        [held.message for held in batch],
                        lease_ms=self._consumer.lease_ms,
                    )
            except Exception as error:
                failures += 1
                desk.not_begun(number)
                self._report_not_begun(error)
                await asyncio.sleep(wait_after(SETTLING, failures, random.random(), error))
            else:
                failures = 0
                took_s = clock() - began_s
                desk.begun(number, results, took_s)
                self._report_settled("begin", len(results), took_s)

    async def _settle_all(self, number: int) -> None:
        """Make the settling calls of one shard when they are due."""
        signal = self._settle[number]
        while True:
            at_s = self._desk.settle_at_s(number)
            if at_s is None or at_s > clock():
                signal.clear()
                await wait_for_event(signal, None if at_s is None else at_s - clock())
                continue
            for settlement in self._desk.settlements(number, clock()):
                self._call(self._settle_one(number, settlement))

    async def _settle_one(self, number: int, settlement: Settlement) -> None:
        """Make one settling call; retry it until it is answered or its leases have ended."""
        port, desk = self._ports[number], self._desk
        call, members = settlement.call
        messages = settlement.messages
        began_s = clock()
        while (left_s := settlement.until_s - clock()) > 0:
            try:
                async with self._lanes[number], asyncio.timeout(min(left_s, CALL_S)):
                    results = await port.settle(call, messages, **members)
            except Exception as error:
                if is_refusal(error):
                    desk.refused(settlement, error)
                    return
                settlement.attempts += 1
                settlement.maybe_done |= not isinstance(error, NotReached)
                wait_s = wait_after(SETTLING, settlement.attempts, random.random(), error)
                await asyncio.sleep(wait_s)
            else:
                desk.settled(settlement, results)
                self._report_settled(str(settlement.verb), len(messages), clock() - began_s)
                return
        desk.given_up(settlement)

    async def _extend_all(self, number: int) -> None:
        """Extend the leases of one shard while their messages wait or are handled."""
        signal = self._lease[number]
        while True:
            at_s = self._desk.lease_at_s(number)
            if at_s is None or at_s > clock():
                signal.clear()
                await wait_for_event(signal, None if at_s is None else at_s - clock())
                continue
            for hold, asked in self._desk.extensions(number, clock()):
                self._call(self._extend_one(number, hold, asked))

    async def _extend_one(self, number: int, hold: Hold, asked: Sequence[Held]) -> None:
        messages = [held.message for held in asked]
        asked_at_s = clock()
        try:
            async with asyncio.timeout(min(max(0.0, hold.until_s - asked_at_s), CALL_S)):
                results = await self._ports[number].settle(
                    "extend", messages, lease_ms=self._consumer.lease_ms
                )
        except Exception as error:
            logger.warning("%s: a lease was not extended: %s", self._consumer.name, error)
            self._desk.not_extended(hold, clock())
        else:
            self._desk.extended(hold, asked, results, asked_at_s)
            self._report_settled("extend", len(messages), clock() - asked_at_s)
        self._lease[number].set()

    async def _flush(self) -> None:
        """Make the last settling calls, and wait up to FLUSH_S for their answers."""
        for number in range(len(self._ports)):
            for settlement in self._desk.settlements(number, clock(), everything=True):
                self._call(self._settle_one(number, settlement))
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=FLUSH_S)
            if late:
                logger.warning(
                    "%s: %d calls have no answer after %.0f s; their messages are delivered again",
                    self._consumer.name,
                    len(late),
                    FLUSH_S,
                )

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
