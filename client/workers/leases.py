"""The messages and leases that a worker holds: their state, which run, and which leases to extend.

Only the desk changes the state of a message. A lease is extended at half-time while any of its
messages waits or is handled in this process. It has ended when its time has passed and no answer
has extended it, even if an extension is in progress. Times are seconds of one monotonic clock;
nothing is sent here.

The broker delivers one message per key at a time. But if a lease is lost while the handler still
runs, the same message, or the next one of the key, is delivered. So a KeyGate lets at most one
message per key run; consumers of one topic and group share a gate.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage


# -------------------------------------------------------------------------- messages and leases


class HeldState(IntEnum):
    """The state of a message in this process."""

    WAITING = 1
    RUNNING = 2
    OVER = 3
    """Decided, returned, or its lease is lost: a decision that comes later is ignored."""


class Held:
    """One message in this process."""

    __slots__ = ("hold", "identity", "message", "state")

    def __init__(self, message: LeasedMessage, hold: Hold, identity: Hashable) -> None:
        self.message = message
        self.hold = hold
        self.identity = identity
        """Its key, or the message itself. Messages with equal identity never run concurrently."""
        self.state = HeldState.WAITING


class Hold:
    """One lease, with the unsettled messages of one receive.

    Times are seconds of the worker's clock.
    """

    __slots__ = ("desk", "extend_at_s", "open", "port", "until_s")

    def __init__(self, desk: Any, port: int, *, until_s: float, extend_at_s: float) -> None:
        self.desk = desk
        """The desk that owns the messages."""
        self.port = port
        self.until_s = until_s
        """When the lease ends unless it is extended."""
        self.extend_at_s = extend_at_s
        self.open: set[Held] = set()
        """The messages that wait or are being handled."""


# ----------------------------------------------------------------------- which leases to extend

# A failed extension is retried after a twentieth of the lease, so nine more tries fit before the
# lease ends.
RETRY_SHARE: Final = 0.05


class LeaseBook:
    """The open leases of one consumer."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._queue: list[tuple[float, int, Hold]] = []
        """A heap by time. A hold is in it once, except while it is being extended."""
        self._numbers = count()

    def begun(self, now_s: float, *, desk: object, port: int) -> Hold:
        """Add a lease that the broker granted in an answer received at `now_s`."""
        hold = Hold(
            desk, port, until_s=now_s + self._lease_s, extend_at_s=now_s + self._lease_s / 2
        )
        self._enter(hold.extend_at_s, hold)
        return hold

    def next_at_s(self) -> float | None:
        """When `due` may return something next, or None."""
        return self._queue[0][0] if self._queue else None

    def due(self, now_s: float) -> tuple[list[Hold], list[Hold]]:
        """(leases to extend now, leases that have ended).

        Call `extended` or `missed` for each of the former; the latter are removed.
        """
        extend: list[Hold] = []
        over: list[Hold] = []
        while self._queue and self._queue[0][0] <= now_s:
            hold = heapq.heappop(self._queue)[2]
            if hold.open:
                (over if hold.until_s <= now_s else extend).append(hold)
        return extend, over

    def extended(self, hold: Hold, asked_at_s: float) -> None:
        """Record an extension. The new lease counts from when it was requested."""
        hold.until_s = asked_at_s + self._lease_s
        hold.extend_at_s = asked_at_s + self._lease_s / 2
        self._enter(hold.extend_at_s, hold)

    def missed(self, hold: Hold, now_s: float) -> None:
        """Record a failed extension: schedule a retry, or the end of the lease."""
        self._enter(min(now_s + self._lease_s * RETRY_SHARE, max(now_s, hold.until_s)), hold)

    def _enter(self, at_s: float, hold: Hold) -> None:
        heapq.heappush(self._queue, (at_s, next(self._numbers), hold))


# ------------------------------------------------------------------ one running message per key


class KeyGate:
    """The running identities, and the messages parked behind each."""

    def __init__(self) -> None:
        self._inside: dict[Hashable, list[Held] | None] = {}

    def enter(self, held: Held) -> bool:
        """Let a message run, or park it. Returns whether it may run."""
        inside = self._inside
        identity = held.identity
        if identity not in inside:
            inside[identity] = None
            return True
        parked = inside[identity]
        if parked is None:
            inside[identity] = [held]
        else:
            parked.append(held)
        return False

    def leave(self, held: Held) -> Sequence[Held]:
        """Release an identity. Returns its parked messages in order, which must enter again."""
        return self._inside.pop(held.identity) or ()

    def parked(self) -> list[Held]:
        """All parked messages."""
        return [held for parked in self._inside.values() for held in parked or ()]
