"""Tells a datagram that is new from one that was recorded: lives and counters.

Each run of a process is a life with a random number. A datagram names the sender's life, the life
of the receiver that it is meant for, and a counter. It is taken once, and only in the life that it
names: so nothing that was recorded before a restart of either side is ever taken. Nodes learn each
other's life by greetings, which carry nothing else and change nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from delaylog.replication.raftos_oracle.refusals import Refusal, Refused

WINDOW: Final = 64
"""A datagram may be overtaken by so many others and is still taken."""
FORMER_LIVES_MAX: Final = 1_024
"""Restarts of a peer that are remembered, so that none of its former lives comes back."""


class Stamp(NamedTuple):
    """What makes a datagram one of its kind."""

    life: str
    """The sender's."""
    for_life: str | None
    """The receiver's, as far as the sender knows it."""
    counter: int


class _Peer:
    """What is known of one other node."""

    __slots__ = ("former", "life", "newest", "seen", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.life: str | None = None
        self.newest = 0
        self.seen = 0
        """Bit n: the datagram with counter `newest` - n was taken."""
        self.former: deque[str] = deque(maxlen=FORMER_LIVES_MAX)


class Sessions:
    """The lives and counters of a node and its peers."""

    def __init__(self, life: str, peers: Iterable[int]) -> None:
        self.life = life
        self._peers = {peer: _Peer() for peer in peers}

    def stamp(self, peer: int) -> Stamp:
        """For the next datagram to a peer."""
        known = self._peers[peer]
        known.sent += 1
        return Stamp(self.life, known.life, known.sent)

    def admit(self, peer: int, stamp: Stamp) -> bool:
        """Take a peer's datagram; True if it is the first of a new life. Raises Refused."""
        if stamp.for_life != self.life:
            raise Refused(Refusal.OTHER_LIFE)
        known = self._peers[peer]
        if stamp.life in known.former:
            raise Refused(Refusal.REPLAYED)
        new = stamp.life != known.life
        if new:
            if known.life is not None:
                known.former.append(known.life)
            known.life, known.newest, known.seen = stamp.life, 0, 0
        _take(known, stamp.counter)
        return new


def _take(known: _Peer, counter: int) -> None:
    """Mark a counter as seen. Raises Refused if it was, or is too old to tell."""
    ahead = counter - known.newest
    if ahead > 0:
        known.newest = counter
        known.seen = (known.seen << min(ahead, WINDOW) | 1) & ((1 << WINDOW) - 1)
        return
    bit = 1 << -ahead
    if -ahead >= WINDOW or known.seen & bit:
        raise Refused(Refusal.REPLAYED)
    known.seen |= bit
