"""Tells a datagram that is new from one that was recorded: lives and counters.

Each run of a process is a life with a random name. A datagram carries its sender's life and a
counter, and is taken once, if the life is the one that the sender is known to live. That is only
learned from an answer to a question with a random number in it: nothing recorded can answer, so
whatever was sent before a restart of either side is never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from delaylog.replication.raftos_oracle.refusals import Refusal, Refused

WINDOW: Final = 64
"""A datagram may be overtaken by so many others and is still taken."""
_ALL_SEEN: Final = (1 << WINDOW) - 1


class Stamp(NamedTuple):
    """What makes a datagram one of its kind."""

    life: str
    counter: int


class _Peer:
    """What is known of one other node."""

    __slots__ = ("asked", "life", "newest", "seen", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.asked: str | None = None
        """The number in the question that is not answered yet."""
        self.life: str | None = None
        self.newest = 0
        self.seen = 0
        """Bit n: the datagram with counter `newest` - n was taken."""


class Sessions:
    """The lives and counters of a node and its peers."""

    def __init__(self, peers: Iterable[int], make_random: Callable[[], str]) -> None:
        """`make_random` gives a text that nobody can guess and that never comes again."""
        self._make_random = make_random
        self._life = make_random()
        self._peers = {peer: _Peer() for peer in peers}

    def change(self, peers: Iterable[int]) -> None:
        """These are the peers from now on; what is known of those that stay is kept."""
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in peers}

    def stamp(self, peer: int) -> Stamp:
        """For the next datagram to a peer."""
        known = self._peers[peer]
        known.sent += 1
        return Stamp(self._life, known.sent)

    def knows(self, peer: int, life: str) -> bool:
        """Whether that is the life of a peer."""
        return self._peers[peer].life == life

    def ask(self, peer: int) -> str:
        """The number for a question about a peer's life: the same until it is answered."""
        known = self._peers[peer]
        if known.asked is None:
            known.asked = self._make_random()
        return known.asked

    def take_answer(self, peer: int, stamp: Stamp, answer: str) -> None:
        """A peer has answered, or a recorded answer came again, which says nothing.

        Of a life that is new here, only what is sent later than the answer is taken.
        """
        known = self._peers[peer]
        if answer != known.asked:
            return
        known.asked = None
        if stamp.life != known.life:
            known.life, known.newest, known.seen = stamp.life, stamp.counter, _ALL_SEEN

    def admit(self, peer: int, stamp: Stamp) -> None:
        """Take a peer's datagram. Raises Refused if it is not new."""
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
