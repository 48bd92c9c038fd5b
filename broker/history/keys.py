"""Rules about the messages of one key: one open lease at a time (F), and their order (G).

For each delivery of a keyed message the span in which its lease was certainly open is stored, and
for each keyed message its place in the order with its first and last delivery. Both are packed by
key; then each key is checked once, in time order. Only certain spans and certain orders are
compared, so a doubt never makes a violation.

The order is due time, then higher priority, then arrival. Leave G out for a topic with another
order. A message certainly precedes another only if its send was answered before the other could be
ready. A message that is committed later is queued behind the ready one, even with an earlier due
time: a send that is due at once gets its due time before it is on disk. Messages that were
rescheduled, sent more than once, or seen dead (and so perhaps replayed) have no certain place and
are skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from struct import Struct

from delaylog.broker.history.events import ABSENT, FOREVER, Event, Kind
from delaylog.broker.history.life import (
    Context,
    GroupLife,
    Life,
    applies,
    by_t0,
    by_t1,
    lease_end_ms,
    tolerance_ms,
)

# ---------------------------------------------------------------------------------------- order

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


# ----------------------------------------------------------------------------------------- keys

SPAN = Struct("<qqqq")
"""id number i64 · call's begin i64 · open from i64 · open until i64"""
assert SPAN.size == 32

_OPEN_MAX = 8
"""Open leases of one key that a new one is compared with. A correct broker has one; a few suffice
to detect a broken one."""


class KeyBook:
    """The lease spans and places of all keyed messages, by (group, key)."""

    __slots__ = ("_names", "_places", "_spans")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._spans: dict[tuple[int, int], bytearray] = {}
        self._places: dict[tuple[int, int], bytearray] = {}

    def add(self, life: Life, context: Context) -> None:
        """Add a message's keyed deliveries in each group, and its place in the order."""
        send_key = life.key()
        name_number = len(self._names)
        self._names.append(life.name)
        for number, group in life.groups.items():
            if not group.deliveries:
                continue
            ordered = sorted(group.deliveries, key=by_t1)
            for index, delivery in enumerate(ordered):
                key = delivery.key or send_key
                if not key:
                    continue
                context.findings.checked("F")
                following = ordered[index + 1] if index + 1 < len(ordered) else None
                until_ms = _open_until_ms(life, group, delivery, following, context)
                if until_ms > delivery.t1:
                    span = SPAN.pack(name_number, delivery.t0, delivery.t1, until_ms)
                    self._spans.setdefault((number, key), bytearray()).extend(span)
            key = ordered[0].key or send_key
            if not key or len(life.sends) != 1 or life.moves or life.dead:
                continue
            send = life.sends[0]
            if send.due == ABSENT or not send.is_known:
                continue
            last = max(group.deliveries, key=by_t0)
            self._places.setdefault((number, key), bytearray()).extend(
                PLACE.pack(
                    name_number,
                    send.due,
                    -send.number,
                    send.t0,
                    send.t1,
                    ordered[0].t0,
                    ordered[0].t1,
                    last.t0,
                )
            )
            context.findings.checked("G")

    def check(self, context: Context) -> None:
        """Check each key."""
        for (_, key), spans in self._spans.items():
            self._check_leases(context.store.key_names[key], spans, context)
        for (_, key), places in self._places.items():
            self._check_order(context.store.key_names[key], places, context)

    def _check_leases(self, key: str, spans: bytearray, context: Context) -> None:
        open_spans: list[tuple[int, int, int]] = []
        for name, t0, first, until in sorted(SPAN.iter_unpack(spans), key=lambda s: s[2]):
            open_spans = [o for o in open_spans if o[0] > first]
            for _, other_t0, other in open_spans:
                # Overlapping leases of one message are checked by rule C.
                if other == name or context.marks.lease_loss(min(t0, other_t0), first):
                    continue
                text = (
                    f"delivered by {first} while the lease of {self._names[other]!r}, "
                    f"which has the same key {key!r}, was open"
                )
                context.findings.violated("F", self._names[name], first, text)
                break
            open_spans.append((until, t0, name))
            if len(open_spans) > _OPEN_MAX:
                open_spans.remove(min(open_spans))

    def _check_order(self, key: str, places: bytearray, context: Context) -> None:
        for place, other in passed_over(places):
            text = (
                f"due at {place.due} and delivered by {place.first_t1}, but "
                f"{self._names[other.name]!r}, which has the same key {key!r} and was due at "
                f"{other.due}, was delivered after {other.last_t0}"
            )
            context.findings.violated("G", self._names[place.name], place.first_t1, text)


def _open_until_ms(
    life: Life, group: GroupLife, delivery: Event, following: Event | None, context: Context
) -> int:
    """Time until which the delivery's lease was certainly open, by the client's clock."""
    default_ms = context.settings.lease_ms
    # The span ends at the latest when the next delivery begins, so later settles do not matter.
    last_ms = FOREVER if following is None else following.t0
    settles = group.settles_of(delivery, last_ms)
    until_ms, _ = lease_end_ms(delivery, settles, default_ms)
    until_ms -= tolerance_ms(delivery, default_ms)
    for settle in settles:
        if settle.kind != Kind.EXTEND:
            until_ms = min(until_ms, settle.t0)
    for cancel in life.cancels:
        if applies(cancel, delivery.group):
            until_ms = min(until_ms, max(cancel.t0, delivery.t0))
    if following is not None:
        until_ms = min(until_ms, following.t0)
    return min(until_ms, group.stray_ms)
