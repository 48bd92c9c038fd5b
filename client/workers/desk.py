"""Desk: what one consumer has in this process, from the receive to the settling call.

A state machine for both workers: messages and the time come in; which to begin, which leases to
extend, what to settle and how much to ask for come out. The one rule: a message that was begun is
settled by what its handler decided or not at all, and never after its lease was lost. Seconds are
those of one steady clock. It has no lock: a worker with threads brings its own.
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
from delaylog.client.workers.failing import is_refusal
from delaylog.client.workers.held import Held, HeldState, Hold
from delaylog.client.workers.intake import Intake
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.leases import LeaseBook
from delaylog.client.workers.retry import Retry
from delaylog.client.workers.settling import Settlement, Settling, Verb

if TYPE_CHECKING:
    from delaylog.client.message import Message

logger = logging.getLogger(__name__)

# While so many acks are not answered nothing is fetched: memory stays bounded when they are slow.
UNSETTLED_MAX: Final = 20_000
CHANCES: Final = 16
WAITING, RUNNING, OVER = HeldState


def _nobody(_: int) -> None:
    """Nobody listens yet."""


class Desk:
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
        self.consumer = consumer
        self.running = 0
        """Messages under handlers."""
        self.unsettled = 0
        """Messages that were decided and whose call was not answered."""
        self.on_ready: Callable[[int], None] = _nobody
        """Called when messages came that can be begun, with how many."""
        self.on_room: Callable[[int], None] = _nobody
        """Called when a shard that `ask` said 0 for may be asked again."""
        self.on_settle: Callable[[int], None] = _nobody
        """Called when there is a settlement of a shard to wait for, or to make now."""
        self.on_lease: Callable[[int], None] = _nobody
        """Called when a lease has come from a shard."""
        self._ready: deque[Held] = deque()
        self._waiting = [0] * ports
        self._low = [-1] * ports
        """How few have to wait for a shard to be asked again; -1: it is not held back."""
        self._gate = gate
        self._chance = chance
        self._lease_s = consumer.lease_ms / 1000
        self._books = [LeaseBook(self._lease_s) for _ in range(ports)]
        self._settling = Settling()
        self._alone: set[int] = set()
        """Shards whose receives take no acks along."""
        self._intake = Intake(
            concurrency=consumer.concurrency,
            places=consumer.concurrency * consumer.rows_max,
            prefetch=consumer.prefetch,
            ports=ports,
        )
        self._on_received = overridden(hooks, "on_received")
        self._on_lease_lost = overridden(hooks, "on_lease_lost")

    # Messages come

    @property
    def waiting(self) -> int:
        """Messages that no handler has begun."""
        return sum(self._waiting)

    def ask(self, port: int) -> int:
        """How many to ask a shard for; 0: wait for `on_room`."""
        here = self._waiting[port]
        n = self._intake.ask(waiting_here=here, waiting=self.waiting, running=self.running)
        if n and self.unsettled < UNSETTLED_MAX:
            return n
        self._low[port] = here // 2
        return 0

    def take_in(self, port: int, messages: Sequence[Message], now_s: float) -> None:
        """One receive was answered now."""
        if not messages:
            return
        hold = self._books[port].begun(now_s, desk=self, port=port)
        if messages[0].batch.columns.key_block:
            fresh = [Held(each, hold, each.key or (port, each.ref)) for each in messages]
        else:
            fresh = [Held(each, hold, (port, each.ref)) for each in messages]
        hold.open.update(fresh)
        self._waiting[port] += len(fresh)
        self._ready.extend(fresh)
        if self._on_received:
            self._on_received(self.consumer.topic, len(fresh))
        self.on_lease(port)
        self.on_ready(len(fresh))

    # Handlers run

    def begin(self, now_s: float) -> Held | None:
        """The next message to handle, None when there is none.

        What lost its lease before is dropped: it comes again.
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
                return held
            held.state = OVER
            hold.open.discard(held)
            self._less_waits(hold.port)
        for port, low in enumerate(self._low):
            if low >= 0:
                self._low[port] = -1
                self.on_room(port)
        return None

    def begin_batch(self, now_s: float) -> list[Held]:
        """As many of them as one call of the handler takes."""
        batch: list[Held] = []
        while len(batch) < self.consumer.rows_max and (held := self.begin(now_s)) is not None:
            batch.append(held)
        return batch

    def done(self, held: Held, seconds: float, now_s: float) -> None:
        """Its handler returned after so long."""
        # The way of nearly all messages, so `_ended` stands here once more without its calls.
        self._intake.handled(1, seconds)
        self.running -= 1
        for each in reversed(self._gate.leave(held)):
            each.hold.desk.unpark(each)
        if held.state is RUNNING:
            held.state = OVER
            hold = held.hold
            hold.open.discard(held)
            self.unsettled += 1
            if self._settling.add(held, Verb.ACK, now_s):
                self.on_settle(hold.port)

    def batch_done(self, batch: Sequence[Held], seconds: float, now_s: float) -> None:
        """The handler of a batch returned."""
        self._intake.handled(len(batch), seconds)
        for held in batch:
            self._ended(held, Verb.ACK, None, now_s)

    def failed(
        self,
        batch: Sequence[Held],
        error: BaseException,
        seconds: float,
        now_s: float,
        *,
        delay_ms: int | None = None,
    ) -> None:
        """A handler raised. `delay_ms` is what `on_error` wants, before any backoff."""
        self._intake.handled(len(batch), seconds)
        if isinstance(error, Retry) and error.delay_ms is not None:
            delay_ms = error.delay_ms
        backoff = self.consumer.backoff
        for held in batch:
            own_ms = delay_ms
            if own_ms is None and backoff is not None:
                # A few waits rather than any: messages with one wait go back by one call.
                chance = int(self._chance() * CHANCES) / CHANCES
                own_ms = backoff.delay_ms(held.message.attempts, chance)
            self._ended(held, Verb.NACK, own_ms, now_s)

    def abandon(self, batch: Iterable[Held]) -> list[Held]:
        """Handlers that were waited for long enough: what they decide from now on counts no more.

        Their keys stay taken, since they may still run; `give_back` the messages that come out.
        """
        abandoned = [held for held in batch if held.state is RUNNING]
        for held in abandoned:
            held.state = OVER
            held.hold.open.discard(held)
            held.message.lease_lost = True
        return abandoned

    def give_back(self, abandoned: Iterable[Held], now_s: float) -> None:
        """What was abandoned may be handled elsewhere, at once.

        It was begun, so it counts as an attempt: what hangs every worker has an end.
        """
        for held in abandoned:
            self._settle(held, Verb.NACK, 0, now_s)

    def give_back_waiting(self, now_s: float) -> None:
        """Everything that was not begun goes back."""
        parked = [held for held in self._gate.parked() if held.hold.desk is self]
        for held in (*self._ready, *parked):
            if held.state is WAITING:
                held.state = OVER
                held.hold.open.discard(held)
                self._settle(held, Verb.GIVE_BACK, None, now_s)
        self.begin(now_s)

    def unpark(self, held: Held) -> None:
        """What it waited for is over: it goes before everything else."""
        self._ready.appendleft(held)
        self.on_ready(1)

    def _ended(self, held: Held, verb: Verb, delay_ms: int | None, now_s: float) -> None:
        self.running -= 1
        for each in reversed(self._gate.leave(held)):
            each.hold.desk.unpark(each)
        if held.state is RUNNING:
            held.state = OVER
            held.hold.open.discard(held)
            self._settle(held, verb, delay_ms, now_s)

    def _settle(self, held: Held, verb: Verb, delay_ms: int | None, now_s: float) -> None:
        self.unsettled += 1
        if self._settling.add(held, verb, now_s, delay_ms=delay_ms):
            self.on_settle(held.hold.port)

    def _less_waits(self, port: int) -> None:
        waiting = self._waiting[port] = self._waiting[port] - 1
        if waiting <= self._low[port]:
            self._low[port] = -1
            self.on_room(port)

    # Settling

    def settle_at_s(self, port: int) -> float | None:
        """When `settlements` has something for a shard."""
        return self._settling.next_at_s(port)

    def settlements(self, port: int, now_s: float, *, everything: bool = False) -> list[Settlement]:
        """Calls to make now at a shard."""
        return self._settling.due(port, now_s, everything=everything)

    def acks_to_carry(self, port: int) -> Settlement | None:
        """Acks that a receive from a shard may take along; `settled` or `not_carried` follows."""
        return None if port in self._alone else self._settling.take_acks(port)

    def not_carried(self, acks: Settlement, error: BaseException, now_s: float) -> bool:
        """The call of acks and a receive failed: the acks are sent alone.

        Returns whether the receive is to be sent alone as well: a broker that refuses the call may
        be of a release that does not know it.
        """
        port, refused = acks.port, isinstance(error, Exception) and is_refusal(error)
        if refused:
            self._alone.add(port)
        acks.maybe_done |= not (refused or isinstance(error, NotReached))
        self._settling.again(acks, now_s)
        self.on_settle(port)
        return refused

    def settled(self, settlement: Settlement, results: Sequence[Settled]) -> None:
        """The call was answered, message by message."""
        # After a repeat `gone` may also mean that the first call did it.
        if settlement.verb is Verb.ACK and not settlement.maybe_done:
            for held, result in zip(settlement.held, results, strict=True):
                if result is Settled.GONE:
                    self._lost(held)
        self._no_longer_unsettled(len(settlement.held))

    def given_up(self, settlement: Settlement) -> None:
        """Nobody answered before its leases were over: what becomes of them is the broker's."""
        logger.warning(
            "%s: no answer to the %s of %d messages before their leases ended; they come again",
            self.consumer.name,
            settlement.verb,
            len(settlement.held),
        )
        if settlement.verb is Verb.ACK:
            for held in settlement.held:
                self._lost(held)
        self._no_longer_unsettled(len(settlement.held))

    def refused(self, settlement: Settlement, error: Exception) -> None:
        """The broker said no: its leases run out by themselves."""
        logger.error(
            "%s: the %s of %d messages was refused, they come again: %s",
            self.consumer.name,
            settlement.verb,
            len(settlement.held),
            error,
        )
        self._no_longer_unsettled(len(settlement.held))

    def _no_longer_unsettled(self, count: int) -> None:
        before, self.unsettled = self.unsettled, self.unsettled - count
        if before >= UNSETTLED_MAX > self.unsettled:
            for port in range(len(self._low)):
                self._low[port] = -1
                self.on_room(port)

    # Leases

    def lease_at_s(self, port: int) -> float | None:
        """When `extensions` has something for a shard."""
        return self._books[port].next_at_s()

    def extensions(self, port: int, now_s: float) -> list[tuple[Hold, list[Held]]]:
        """Leases of a shard to extend now, each with its messages; what is over is lost."""
        extend, over = self._books[port].due(now_s)
        for hold in over:
            self._all_lost(hold)
        return [(hold, list(hold.open)) for hold in extend]

    def extended(
        self, hold: Hold, asked: Sequence[Held], results: Sequence[Settled], asked_at_s: float
    ) -> None:
        """The broker answered an extension that it was asked for then."""
        for held, result in zip(asked, results, strict=True):
            # What was settled meanwhile is gone too, and nobody's loss.
            if result is Settled.GONE and held in hold.open:
                hold.open.discard(held)
                self._lose(held)
        self._books[hold.port].extended(hold, asked_at_s)

    def not_extended(self, hold: Hold, now_s: float) -> None:
        """Nobody answered; it is tried again while there is time."""
        self._books[hold.port].missed(hold, now_s)

    def _all_lost(self, hold: Hold) -> None:
        for held in hold.open:
            self._lose(held)
        hold.open.clear()

    def _lose(self, held: Held) -> None:
        """A lease ended under a message that waits or runs."""
        begun = held.state is RUNNING
        held.state = OVER
        if begun:
            self._lost(held)

    def _lost(self, held: Held) -> None:
        held.message.lease_lost = True
        if self._on_lease_lost:
            self._on_lease_lost(held.message)
