"""Rules about the messages of one key: one open lease at a time (F), and their order (G).

For each delivery of a keyed message the span in which its lease was certainly open is stored, and
for each keyed message its place in the order with its first and last delivery. Both are packed by
key; then each key is checked once, in time order. Only certain spans and certain orders are
compared, so a doubt never makes a violation.

The order is due time, then higher priority, then arrival (key_order.py). Leave G out for a topic
with another order. Messages that were rescheduled, sent more than once, or seen dead (and so
perhaps replayed) have no certain place and are skipped.
"""

from struct import Struct

from delaylog.broker.history.events import ABSENT, FOREVER, Event, Kind
from delaylog.broker.history.key_order import PLACE, passed_over
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
