"""Desk: the messages of one consumer in this process, from the receive to the settling call.

The desk is a state machine without I/O, shared by both kinds of worker. Its inputs are messages and
the time. Its outputs are the messages to handle, the leases to extend, the calls to make, and the
number of messages to fetch. A message whose handler has started is settled with the handler's
decision or not at all, and never after its lease was lost. Times are seconds of one monotonic
clock. The desk has no lock: a worker with threads must hold its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from delaylog.client.errors import NotReached
from delaylog.client.hooks import Hooks, overridden
from delaylog.client.models import Settled
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.failures import is_refusal
from delaylog.client.workers.intake import BeginningDesk, Intake, do_nothing, split
from delaylog.client.workers.leases import Held, HeldState, Hold, KeyGate, LeaseBook
from delaylog.client.workers.settlements import (
    ACKED,
    GIVEN_BACK,
    STOPPED,
    Decision,
    Settlement,
    Settling,
    Verb,
    after_failure,
)

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)

# With this many unanswered acks no messages are fetched, so that memory stays bounded.
UNSETTLED_MAX: Final = 20_000
WAITING, RUNNING, OVER = HeldState


class Desk(BeginningDesk):
    """One consumer's messages, over all its shards (`ports`, by number)."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        ports: int,
        gate: KeyGate,
        hooks: Hooks,
        chance: Callable[[], float],
    ) -> None:
        super().__init__(ports=ports, places=consumer.concurrency * consumer.rows_max)
        self.consumer = consumer
        self.running = 0
        """Messages that are being handled."""
        self.unsettled = 0
        """Messages with a decision whose settling call is not answered yet."""
        self.on_room: Callable[[int], None] = do_nothing
        """Called when a shard may be asked again after `ask` returned 0 for it."""
        self.on_settle: Callable[[int], None] = do_nothing
        """Called when a settlement of a shard was created or became due."""
        self.on_lease: Callable[[int], None] = do_nothing
        """Called when a shard has granted a lease."""
        self._ready: deque[Held] = deque()
        self._waiting = [0] * ports
        self._low = [-1] * ports
        """The number of waiting messages at which a shard is asked again; -1: not throttled."""
        self._gate = gate
        self._chance = chance
        self._lease_s = consumer.lease_ms / 1000
        self._books = [LeaseBook(self._lease_s) for _ in range(ports)]
        self._settling = Settling()
        self._alone: set[int] = set()
        """Shards whose receives carry no acks."""
        self._intake = Intake(
            concurrency=consumer.concurrency,
            places=self._places,
            prefetch=consumer.prefetch,
            ports=ports,
        )
        self._on_received = overridden(hooks, "on_received")
        self._on_lease_lost = overridden(hooks, "on_lease_lost")

    # Messages arrive

    def ask(self, port: int) -> int:
        """How many messages to fetch from a shard; 0: wait for `on_room`."""
        here = self._waiting[port]
        n = self._intake.ask(waiting_here=here, waiting=self.waiting, running=self.running)
        self._settling.pace(self._intake.mean_s)
        if n and self.unsettled < UNSETTLED_MAX:
            return n
        self._low[port] = here // 2
        return 0

    def take_in(
        self,
        port: int,
        messages: Sequence[LeasedMessage],
        now_s: float,
        begun: int | None = None,
    ) -> None:
        """Add the messages of a receive that was answered at `now_s`.

        Attempts have begun at the first `begun` of them, if they are the first ones; None: at all.
        """
        if not messages:
            return
        hold = self._books[port].begun(now_s, desk=self, port=port)
        if messages[0].batch.columns.key_block:
            fresh = [Held(each, hold, each.key or (port, each.ref)) for each in messages]
        else:
            fresh = [Held(each, hold, (port, each.ref)) for each in messages]
        hold.open.update(fresh)
        self._waiting[port] += len(fresh)
        ready, untried = split(fresh, begun)
        self._ready.extend(ready)
        if self._on_received:
            self._on_received(self.consumer.topic, len(fresh))
        self.on_lease(port)
        self.on_ready(len(ready))
        if untried:
            self._untried.add(port, untried)
            self.on_begin(port)

    # Handlers run

    def begin(self, now_s: float) -> Held | None:
        """Start the next message; None if there is none.

        Messages whose lease has ended are discarded: the broker redelivers them.
        """
        ready = self._ready
        while ready:
            held = ready.popleft()
            hold = held.hold
            if held.state is WAITING and now_s < hold.until_s:
                if not self._gate.enter(held):
                    continue
                held.state = RUNNING
                self.running += 1
                self._less_waits(hold.port)
                if self._untried.free and len(ready) <= self._begin_low:
                    self._ask_to_begin()
                return held
            self._drop(held)
        self._ask_to_begin()
        for port, low in enumerate(self._low):
            if low >= 0:
                self._low[port] = -1
                self.on_room(port)
        return None

    def begin_batch(self, now_s: float) -> list[Held]:
        """Start as many messages as one call of the handler takes."""
        batch: list[Held] = []
        while len(batch) < self.consumer.rows_max and (held := self.begin(now_s)) is not None:
            batch.append(held)
        return batch

    def done(self, held: Held, seconds: float, now_s: float) -> None:
        """Record that the handler of a message returned after `seconds`."""
        # The hot path: this is `_ended` with its calls inlined.
        self._intake.handled(1, seconds)
        self.running -= 1
        for each in reversed(self._gate.leave(held)):
            each.hold.desk.unpark(each)
        if held.state is RUNNING:
            held.state = OVER
            hold = held.hold
            hold.open.discard(held)
            if held.message.settled:
                return
            self.unsettled += 1
            if self._settling.add(held, ACKED, now_s):
                self.on_settle(hold.port)

    def batch_done(self, batch: Sequence[Held], seconds: float, now_s: float) -> None:
        """Record that the handler of a batch returned."""
        self._intake.handled(len(batch), seconds)
        for held in batch:
            self._ended(held, ACKED, now_s)

    def failed(
        self,
        batch: Sequence[Held],
        error: BaseException,
        seconds: float,
        now_s: float,
        *,
        delay_ms: int | None = None,
    ) -> None:
        """Record that a handler raised. `delay_ms` of `on_error` takes precedence over backoff."""
        self._intake.handled(len(batch), seconds)
        for held in batch:
            decision = after_failure(self.consumer, held, error, delay_ms, self._chance)
            self._ended(held, decision, now_s)

    def abandoned_failed(
        self,
        abandoned: Sequence[Held],
        error: BaseException,
        now_s: float,
        *,
        delay_ms: int | None = None,
    ) -> None:
        """Return abandoned messages as failed ones, after the delay of a failure."""
        for held in abandoned:
            decision = after_failure(self.consumer, held, error, delay_ms, self._chance)
            self._settle(held, decision, now_s)

    def abandon(self, batch: Iterable[Held]) -> list[Held]:
        """Give up on handlers that did not end in time: their decisions are ignored from now on.

        Their keys stay locked, since they may still run. Pass the returned messages to `give_back`.
        """
        abandoned: list[Held] = []
        for held in batch:
            if held.state is RUNNING:
                held.state = OVER
                held.hold.open.discard(held)
                if not held.message.settled:
                    held.message.lease_lost = True
                    abandoned.append(held)
        return abandoned

    def give_back(self, abandoned: Iterable[Held], now_s: float) -> None:
        """Nack abandoned messages without delay.

        The attempt counts, so that a message that hangs every worker is dead in the end.
        """
        for held in abandoned:
            self._settle(held, STOPPED, now_s)

    def give_back_waiting(self, now_s: float) -> None:
        """Return all messages that no handler has started."""
        parked = [held for held in self._gate.parked() if held.hold.desk is self]
        self._ready.extend(self._untried.drain())
        for held in (*self._ready, *parked, *self._untried.asked()):
            if held.state is WAITING:
                held.state = OVER
                held.hold.open.discard(held)
                self._settle(held, GIVEN_BACK, now_s)
        self.begin(now_s)

    def unpark(self, held: Held) -> None:
        """Put a parked message at the head of the queue: its key is free."""
        self._ready.appendleft(held)
        self.on_ready(1)

    def _ended(self, held: Held, decision: Decision, now_s: float) -> None:
        self.running -= 1
        for each in reversed(self._gate.leave(held)):
            each.hold.desk.unpark(each)
        if held.state is RUNNING:
            held.state = OVER
            held.hold.open.discard(held)
            if not held.message.settled:
                self._settle(held, decision, now_s)

    def _settle(self, held: Held, decision: Decision, now_s: float) -> None:
        self.unsettled += 1
        if self._settling.add(held, decision, now_s):
            self.on_settle(held.hold.port)

    def _less_waits(self, port: int) -> None:
        waiting = self._waiting[port] = self._waiting[port] - 1
        if waiting <= self._low[port]:
            self._low[port] = -1
            self.on_room(port)

    # Settling

    def settle_at_s(self, port: int) -> float | None:
        """When the next settlement of a shard is due, or None."""
        return self._settling.next_at_s(port)

    def settlements(self, port: int, now_s: float, *, everything: bool = False) -> list[Settlement]:
        """The settling calls to make now on a shard."""
        return self._settling.due(port, now_s, everything=everything)

    def acks_to_carry(self, port: int) -> Settlement | None:
        """Acks to send with a receive. `settled` or `not_carried` must follow."""
        return None if port in self._alone else self._settling.take_acks(port)

    def not_carried(self, acks: Settlement, error: BaseException, now_s: float) -> bool:
        """Handle the failure of a combined ack and receive: the acks become due on their own.

        Returns whether the receive should be made on its own: an older broker refuses the combined
        call.
        """
        port, refused = acks.port, isinstance(error, Exception) and is_refusal(error)
        if refused:
            self._alone.add(port)
        acks.maybe_done |= not (refused or isinstance(error, NotReached))
        self._settling.again(acks, now_s)
        self.on_settle(port)
        return refused

    def settled(self, settlement: Settlement, results: Sequence[Settled]) -> None:
        """Record the results of a settling call."""
        # After a retry `gone` may also mean that the first call succeeded.
        if settlement.verb is Verb.ACK and not settlement.maybe_done:
            for held, result in zip(settlement.held, results, strict=True):
                if result is Settled.GONE:
                    self._lost(held)
        self._no_longer_unsettled(len(settlement.held))

    def given_up(self, settlement: Settlement) -> None:
        """Give up on a settlement: its leases ended before the broker answered."""
        logger.warning(
            "%s: no answer to the %s of %d messages before their leases ended: they are delivered "
            "again",
            self.consumer.name,
            settlement.verb,
            len(settlement.held),
        )
        if settlement.verb is Verb.ACK:
            for held in settlement.held:
                self._lost(held)
        self._no_longer_unsettled(len(settlement.held))

    def refused(self, settlement: Settlement, error: Exception) -> None:
        """Record that the broker refused a settlement: its leases expire."""
        logger.error(
            "%s: the %s of %d messages was refused; they are delivered again: %s",
            self.consumer.name,
            settlement.verb,
            len(settlement.held),
            error,
        )
        self._no_longer_unsettled(len(settlement.held))

    def _no_longer_unsettled(self, count: int) -> None:
        before, self.unsettled = self.unsettled, self.unsettled - count
        if not self.unsettled:
            self._ask_to_begin()
        if before >= UNSETTLED_MAX > self.unsettled:
            for port in range(len(self._low)):
                self._low[port] = -1
                self.on_room(port)

    # Leases

    def lease_at_s(self, port: int) -> float | None:
        """When the next lease of a shard is due for extension, or None."""
        return self._books[port].next_at_s()

    def extensions(self, port: int, now_s: float) -> list[tuple[Hold, list[Held]]]:
        """The leases to extend now, each with its messages. Expired leases become lost."""
        extend, over = self._books[port].due(now_s)
        for hold in over:
            self._all_lost(hold)
        return [(hold, list(hold.open)) for hold in extend]

    def extended(
        self, hold: Hold, asked: Sequence[Held], results: Sequence[Settled], asked_at_s: float
    ) -> None:
        """Record the answer to an extension that was requested at `asked_at_s`."""
        for held, result in zip(asked, results, strict=True):
            # A message that was settled meanwhile is `gone` too, but its lease was not lost.
            if result is Settled.GONE and held in hold.open and not held.message.settled:
                hold.open.discard(held)
                self._lose(held)
        self._books[hold.port].extended(hold, asked_at_s)

    def not_extended(self, hold: Hold, now_s: float) -> None:
        """Record a failed extension; it is retried while the lease lasts."""
        self._books[hold.port].missed(hold, now_s)

    def _all_lost(self, hold: Hold) -> None:
        for held in hold.open:
            self._lose(held)
        hold.open.clear()

    def _lose(self, held: Held) -> None:
        """Record that the lease of a waiting or running message has ended."""
        begun = held.state is RUNNING
        held.state = OVER
        if begun and not held.message.settled:
            self._lost(held)

    def _lost(self, held: Held) -> None:
        held.message.lease_lost = True
        if self._on_lease_lost:
            self._on_lease_lost(held.message)
