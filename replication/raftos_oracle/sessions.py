"""Replay protection of datagrams: lives and counters.

Each process is a life with a random name. A datagram carries its sender's life and a counter, and
is accepted once, if the life is the known one of the sender. A life is learned only from the answer
to a random challenge, which no recorded datagram can contain. So a datagram from before a restart
of either side is never accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from delaylog.replication.raftos_oracle.refusals import Refusal, Refused

WINDOW: Final = 64
"""A datagram that fewer others have overtaken is still accepted."""
_ALL_SEEN: Final = (1 << WINDOW) - 1


class Stamp(NamedTuple):
    """The identity of a datagram."""

    life: str
    counter: int


class _Peer:
    """The state of one other node."""

    __slots__ = ("asked", "life", "newest", "seen", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.asked: str | None = None
        """The challenge that is not answered yet."""
        self.life: str | None = None
        self.newest = 0
        self.seen = 0
        """Bit n: the datagram with counter `newest` - n was accepted."""


class Sessions:
    """The lives and counters of a node and its peers."""

    def __init__(self, peers: Iterable[int], make_random: Callable[[], str]) -> None:
        """`make_random` returns a text that is unique and cannot be guessed."""
        self._make_random = make_random
        self._life = make_random()
        self._peers = {peer: _Peer() for peer in peers}

    def change(self, peers: Iterable[int]) -> None:
        """Use these peers from now on; the state of those that stay is kept."""
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in peers}

    def stamp(self, peer: int) -> Stamp:
        """The stamp for the next datagram to a peer."""
        known = self._peers[peer]
        known.sent += 1
        return Stamp(self._life, known.sent)

    def knows(self, peer: int, life: str) -> bool:
        """Whether this is the known life of a peer."""
        return self._peers[peer].life == life

    def ask(self, peer: int) -> str:
        """The challenge for a peer: the same until it is answered."""
        known = self._peers[peer]
        if known.asked is None:
            known.asked = self._make_random()
        return known.asked

    def take_answer(self, peer: int, stamp: Stamp, answer: str) -> None:
        """A peer has answered the challenge. Another answer is ignored: it was recorded.

        Of a new life, only datagrams that are sent after the answer are accepted.
        """
        known = self._peers[peer]
        if answer != known.asked:
            return
        known.asked = None
        if stamp.life != known.life:
            known.life, known.newest, known.seen = stamp.life, stamp.counter, _ALL_SEEN

    def admit(self, peer: int, stamp: Stamp) -> None:
        """Accept a peer's datagram. Raises Refused if it is not new."""
        known = self._peers[peer]
        if stamp.life != known.life:
            raise Refused(Refusal.OTHER_LIFE)
        ahead = stamp.counter - known.newest
        if ahead > 0:
            known.newest = stamp.counter
            known.seen = (known.seen << min(ahead, WINDOW) | 1) & _ALL_SEEN
            return
        bit = 1 << -ahead
        if -ahead >= WINDOW or known.seen & bit:
            raise Refused(Refusal.REPLAYED)
        known.seen |= bit
