"""What handlers decided, gathered into calls: by shard, by verb and by delay.

A call goes out 5 ms after its first message, or with its thousandth. The one rule: shards never
wait for one another, and a message is handed out in one call only. Nothing is sent here; time
comes in as seconds of one steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from delaylog.client.keywords import SettleTimes
from delaylog.client.shards import settling as client_settling
from delaylog.client.workers.held import Held

if TYPE_CHECKING:
    from delaylog.client.message import Message

GATHER_S: Final = 0.005
GATHER_ROWS_MAX: Final = 1_000
CARRIED_MAX: Final = 64
"""Acks that go with a receive, by receipts: more are cheaper in columns."""


class Verb(StrEnum):
    """What becomes of a message."""

    ACK = "ack"
    NACK = "nack"
    GIVE_BACK = "give_back"


@dataclass(slots=True)
class Settlement:
    """One call: these messages of one shard."""

    port: int
    verb: Verb
    delay_ms: int | None
    """Of a nack; None = as the topic says."""
    due_at_s: float
    held: list[Held] = field(default_factory=list)
    attempts: int = 0
    """Calls that were made of it and failed."""
    maybe_done: bool = False
    """One of those may have been carried out."""

    @property
    def call(self) -> tuple[client_settling.Verb, SettleTimes]:
        """The call that brings it about."""
        if self.verb is Verb.ACK:
            return "ack", {}
        if self.verb is Verb.NACK:
            return "nack", {"delay_ms": self.delay_ms}
        return "extend", {"lease_ms": 0}

    @property
    def messages(self) -> list[Message]:
        """What it settles."""
        return [held.message for held in self.held]

    @property
    def until_s(self) -> float:
        """When the last of its leases ends: later nobody is asked."""
        return max(held.hold.until_s for held in self.held)


class Settling:
    """What waits to be settled by one consumer."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, Verb, int | None], Settlement] = {}
        self._full: list[Settlement] = []

    def add(
        self, held: Held, verb: Verb, now_s: float, *, delay_ms: int | None = None
    ) -> Settlement | None:
        """Gather one more; the settlement if this one began it or made it full."""
        key = (held.hold.port, verb, delay_ms)
        settlement = self._open.get(key)
        if settlement is None:
            settlement = Settlement(held.hold.port, verb, delay_ms, now_s + GATHER_S, [held])
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
        """The acks that were to wait for more, unless they are too many to go with a receive."""
        key = (port, Verb.ACK, None)
        settlement = self._open.get(key)
        if settlement is None or len(settlement.held) > CARRIED_MAX:
            return None
        del self._open[key]
        return settlement

    def again(self, settlement: Settlement, now_s: float) -> None:
        """One that was taken and not made is due."""
        settlement.due_at_s = now_s
        self._full.append(settlement)

    def next_at_s(self, port: int) -> float | None:
        """When `due` has something for a shard."""
        return min(
            (each.due_at_s for each in self._full if each.port == port),
            default=min(
                (each.due_at_s for each in self._open.values() if each.port == port), default=None
            ),
        )

    def due(self, port: int, now_s: float, *, everything: bool = False) -> list[Settlement]:
        """Calls to make now at a shard; `everything`: also what was to wait for more."""
        ready = [each for each in self._full if each.port == port]
        if ready:
            self._full = [each for each in self._full if each.port != port]
        for key, each in list(self._open.items()):
            if each.port == port and (everything or each.due_at_s <= now_s):
                ready.append(each)
                del self._open[key]
        return ready
