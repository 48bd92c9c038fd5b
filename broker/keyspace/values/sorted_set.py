"""A sorted set: scores by member, and members ordered by score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from delaylog.broker.keyspace.values.score_order import Entry, Rank, ScoreOrder

LISTPACK_ENTRIES: Final = 128
LISTPACK_BYTES: Final = 64
"""Limits of a listpack: the number of members, and their length."""


class SortedSetValue:
    """`scores` maps members to scores; `order` has the entries (score, member) in order."""

    __slots__ = ("large", "order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order = ScoreOrder()
        self.large = False
        """The set has outgrown a listpack of Redis once: its scores may be -0."""

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.scores)

    def put(self, member: bytes, score: float) -> bool | None:
        """Add a member or change its score; returns whether it is new, None if nothing changed."""
        scores = self.scores
        old = scores.get(member)
        if old is None:
            if not self.large:
                if len(scores) >= LISTPACK_ENTRIES or len(member) > LISTPACK_BYTES:
                    self.large = True
                elif not score:
                    # A listpack holds whole scores as integers, which have no -0.
                    score = 0.0
            scores[member] = score
            self.order.add(score, member)
            return True
        if old == score:
            return None
        if not score and not self.large:
            score = 0.0
        order = self.order
        order.remove(old, member)
        order.add(score, member)
        scores[member] = score
        return False

    def take(self, member: bytes) -> bool:
        """Remove a member; returns whether it existed."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        self.order.remove(score, member)
        return True

    def pop(self, most: int, *, greatest: bool) -> list[Entry]:
        """Remove and return up to `most` members of one end."""
        order, scores = self.order, self.scores
        if most >= len(scores):
            out = list(order)
            if greatest:
                out.reverse()
            self.scores, self.order = {}, ScoreOrder()
            return out
        out = [order.pop(greatest=greatest) for _ in range(most)]
        for _, member in out:
            del scores[member]
        return out

    def take_between(self, start: Rank, stop: Rank) -> int:
        """Remove the entries from rank `start` to before `stop`; returns their number."""
        if start >= stop:
            return 0
        order, scores = self.order, self.scores
        taken = order.walk(start, stop)
        for _, member in taken:
            del scores[member]
        order.delete(start, stop)
        return len(taken)
