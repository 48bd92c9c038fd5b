"""The order of a key's messages (rule G): finds deliveries made before those of predecessors.

A message certainly precedes another only if its send was answered before the other could be ready.
A message that is committed later is queued behind the ready one, even with an earlier due time: a
send that is due at once gets its due time before it is on disk.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from struct import Struct

PLACE = Struct("<qqqqqqqq")
"""id number · due · negated priority · send t0 · send t1 · first delivery t0 and t1 · last
delivery t0, all i64"""
assert PLACE.size == 64


@dataclass(frozen=True, slots=True)
class Place:
    """One message of a key: its place in the order, and the times of its send and deliveries."""

    name: int
    due: int
    rank: int
    sent_t0: int
    sent_t1: int
    first_t0: int
    first_t1: int
    last_t0: int

    @property
    def order(self) -> tuple[int, int]:
        """Due time, then the higher priority."""
        return self.due, self.rank

    @property
    def ready_ms(self) -> int:
        """Earliest time at which the message can have become ready."""
        return max(self.sent_t0, min(self.due, self.first_t0))


def passed_over(packed: bytes | bytearray) -> Iterator[tuple[Place, Place]]:
    """Yield (message, predecessor that was delivered after it), at most one pair for a message.

    Messages are visited in the order in which they became ready. Those whose send was answered by
    then are in a tree, by their place in the order. For each visited message the tree gives, among
    all smaller places, the message that was delivered last. The work is O(n log n), however long
    messages waited for each other.
    """
    places = [Place(*row) for row in PLACE.iter_unpack(packed)]
    numbers = {order: at for at, order in enumerate(sorted({each.order for each in places}), 1)}
    arrivals = sorted(places, key=lambda each: each.sent_t1)
    latest = _Latest(len(numbers))
    twins = _twins(places)
    arrived = 0
    for place in sorted(places, key=lambda each: each.ready_ms):
        while arrived < len(arrivals) and arrivals[arrived].sent_t1 < place.ready_ms:
            latest.note(numbers[arrivals[arrived].order], arrivals[arrived])
            arrived += 1
        found = latest.below(numbers[place.order])
        if found is None or found.last_t0 <= place.first_t1:
            found = twins[place.order].latest_before(place.sent_t0)
        if found is not None and found.last_t0 > place.first_t1:
            yield place, found


class _Latest:
    """A Fenwick tree of maxima: of the places added below a number, the one delivered last."""

    def __init__(self, count: int) -> None:
        self._tree: list[Place | None] = [None] * (count + 1)

    def note(self, number: int, place: Place) -> None:
        """Add a place under a number from 1 on."""
        tree = self._tree
        while number < len(tree):
            tree[number] = _later(tree[number], place)
            number += number & -number

    def below(self, number: int) -> Place | None:
        """Of the places under smaller numbers, the one delivered last."""
        found: Place | None = None
        number -= 1
        while number:
            other = self._tree[number]
            if other is not None:
                found = _later(found, other)
            number -= number & -number
        return found


class _Twins:
    """Places of one due time and priority: of these, the one sent first precedes."""

    def __init__(self, places: list[Place]) -> None:
        self._sent_t1 = [each.sent_t1 for each in places]
        self._latest: list[Place] = []
        latest: Place | None = None
        for each in places:
            latest = _later(latest, each)
            self._latest.append(latest)

    def latest_before(self, sent_t0: int) -> Place | None:
        """Of the places whose send was answered before `sent_t0`, the one delivered last."""
        count = bisect_left(self._sent_t1, sent_t0)
        return self._latest[count - 1] if count else None


def _twins(places: list[Place]) -> dict[tuple[int, int], _Twins]:
    ordered = sorted(places, key=lambda each: (each.order, each.sent_t1))
    return {order: _Twins(list(same)) for order, same in groupby(ordered, lambda each: each.order)}


def _later(one: Place | None, other: Place) -> Place:
    return other if one is None or other.last_t0 > one.last_t0 else one
