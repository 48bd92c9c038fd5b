"""A sorted set: members by score, ties by their bytes."""

from __future__ import annotations

from sortedcontainers import SortedList


class SortedSetValue:
    """`scores` finds a member, `order` holds (score, member) in their order."""

    __slots__ = ("large", "order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList[tuple[float, bytes]] = SortedList()
        self.large = False
        """It once outgrew a listpack: OBJECT ENCODING never goes back."""

    def __len__(self) -> int:
        return len(self.scores)

    def put(self, member: bytes, score: float) -> bool:
        """Add a member or give it another score; True if it is new."""
        old = self.scores.get(member)
        if old is not None:
            if old != score:
                self.order.remove((old, member))
                self.order.add((score, member))
                self.scores[member] = score
            return False
        self.scores[member] = score
        self.order.add((score, member))
        return True

    def take(self, member: bytes) -> bool:
        """Remove a member; True if it was there."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        self.order.remove((score, member))
        return True
