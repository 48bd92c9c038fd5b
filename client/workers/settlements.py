"""Gathers the decisions of handlers into settling calls, by shard and decision.

A call is due at once, or 5 ms after its first message if handlers are fast, or with its thousandth.
Shards never wait for each other, and each message is part of one call only. Nothing is sent here;
times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from delaylog.client.handlers import Reject, Retry, reason_of
from delaylog.client.keywords import SettleTimes
from delaylog.client.shards.settlements import Verb as SettleVerb
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.leases import Held

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

CHANCES: Final = 16
GATHER_S: Final = 0.005
GATHER_ROWS_MAX: Final = 1_000
CARRIED_MAX: Final = 64
"""The most acks that are sent with a receive, as receipts. Columns are cheaper for more."""


class Verb(StrEnum):
    """The decision about a message."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    GIVE_BACK = "give_back"


class Decision(NamedTuple):
    """What becomes of a message."""

    verb: Verb
    delay_ms: int | None = None
    """The delay of a nack; None uses the topic's backoff."""
    reason: str | None = None
    """Why the handler failed; the broker stores it."""


ACKED: Final = Decision(Verb.ACK)
GIVEN_BACK: Final = Decision(Verb.GIVE_BACK)
STOPPED: Final = Decision(Verb.NACK, 0, "the worker stopped before the handler ended")


@dataclass(slots=True)
class Settlement:
    """One settling call for messages of one shard."""

    port: int
    decision: Decision
    due_at_s: float
    held: list[Held] = field(default_factory=list)
    attempts: int = 0
    """The number of failed tries."""
    maybe_done: bool = False
    """Whether one of them may have been carried out."""

    @property
    def verb(self) -> Verb:
        """The verb of the decision."""
        return self.decision.verb

    @property
    def call(self) -> tuple[SettleVerb, SettleTimes]:
        """The verb and the keywords of the call."""
        verb, delay_ms, reason = self.decision
        if verb is Verb.ACK:
            return "ack", {}
        if verb is Verb.NACK:
            return "nack", {"delay_ms": delay_ms, "reason": reason}
        if verb is Verb.REJECT:
            return "reject", {"reason": reason}
        return "extend", {"lease_ms": 0}

    @property
    def messages(self) -> list[LeasedMessage]:
        """The messages to settle."""
        return [held.message for held in self.held]

    @property
    def until_s(self) -> float:
        """When the last of its leases ends. Later tries are pointless."""
        return max(held.hold.until_s for held in self.held)


def after_failure(
    consumer: Consumer,
    held: Held,
    error: BaseException,
    delay_ms: int | None,
    chance: Callable[[], float],
) -> Decision:
    """What becomes of a message whose handler raised, and after which delay.

    `delay_ms` is the answer of `on_error`, which takes precedence over the backoff.
    """
    if isinstance(error, Reject):
        return Decision(Verb.REJECT, reason=reason_of(error))
    if isinstance(error, Retry) and error.delay_ms is not None:
        delay_ms = error.delay_ms
    backoff = consumer.backoff
    if delay_ms is None and backoff is not None:
        # Quantized jitter: messages with the same delay are nacked by one call.
        delay_ms = backoff.delay_ms(held.message.attempts, int(chance() * CHANCES) / CHANCES)
    return Decision(Verb.NACK, delay_ms, reason_of(error))


class Settling:
    """The settlements of one consumer that are not sent yet."""

    def __init__(self) -> None:
        self.gather_s = GATHER_S
        """How long a call waits for further messages."""
        self._open: dict[tuple[int, Decision], Settlement] = {}
        self._full: list[Settlement] = []

    def pace(self, mean_s: float) -> None:
        """Adapt to how long a handler takes: acks of slow ones do not wait for further ones."""
        self.gather_s = GATHER_S if mean_s < GATHER_S else 0.0

    def add(self, held: Held, decision: Decision, now_s: float) -> Settlement | None:
        """Add a message. Returns its settlement if the message is the first or fills it."""
        key = (held.hold.port, decision)
        settlement = self._open.get(key)
        if settlement is None:
            settlement = Settlement(held.hold.port, decision, now_s + self.gather_s, [held])
            self._open[key] = settlement
            return settlement
        rows = settlement.held
        rows.append(held)
        if len(rows) < GATHER_ROWS_MAX:
            return None
        del self._open[key]
        settlement.due_at_s = now_s
        self._full.append(settlement)
        return settlement

    def take_acks(self, port: int) -> Settlement | None:
        """Take the gathering acks, unless they are too many to be sent with a receive."""
        key = (port, ACKED)
        settlement = self._open.get(key)
        if settlement is None or len(settlement.held) > CARRIED_MAX:
            return None
        del self._open[key]
        return settlement

    def again(self, settlement: Settlement, now_s: float) -> None:
        """Make a settlement due that was taken but not carried out."""
        settlement.due_at_s = now_s
        self._full.append(settlement)

    def next_at_s(self, port: int) -> float | None:
        """When the next settlement of a shard is due, or None."""
        return min(
            (each.due_at_s for each in self._full if each.port == port),
            default=min(
                (each.due_at_s for each in self._open.values() if each.port == port), default=None
            ),
        )

    def due(self, port: int, now_s: float, *, everything: bool = False) -> list[Settlement]:
        """The calls to make now on a shard; `everything`: also those that are still gathering."""
        ready = [each for each in self._full if each.port == port]
        if ready:
            self._full = [each for each in self._full if each.port != port]
        for key, each in list(self._open.items()):
            if each.port == port and (everything or each.due_at_s <= now_s):
                ready.append(each)
                del self._open[key]
        return ready
