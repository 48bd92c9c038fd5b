"""Which sends can explain a delivery: rules B, D, E and J, and the part of C about acks.

For each delivery the check determines which sends may still have had a living message, which due
times may have been in force, and which bodies may have been current. A call with an unknown outcome
may have taken effect at any time since it began, so it only adds possibilities; only answered calls
remove them. A delivery that no possibility explains is a violation.

An ack or cancel that was answered `done` ended exactly one living message. An id names one living
message, so all sends that were certainly answered before had merged into it. If there was none, it
was the message of the oldest send that may have been.

The rest of D and E: a cancel or reschedule without `force` acts on waiting and ready messages only;
for a leased message it must answer `too_late`. So it is a violation if one was answered `done`
while a lease was certainly open, whichever call began first. This also catches a receive that had
been waiting since before the cancel.
"""

from __future__ import annotations

from bisect import bisect_right

from delaylog.broker.history.events import ABSENT, FORCED, FOREVER, Event, Kind, Result
from delaylog.broker.history.life import Context, GroupLife, Life, applies, by_t0, by_t1, held_at
from delaylog.broker.history.report import Lateness

# ----------------------------------------------------------------------------------- deliveries


class Latenesses:
    """The histograms of rule I, of deliveries whose due time is certain."""

    __slots__ = ("broker", "disturbed", "receipt")

    def __init__(self) -> None:
        self.receipt = Lateness()
        self.broker = Lateness()
        self.disturbed = Lateness()

    def add(self, delivery: Event, due_ms: int, context: Context) -> None:
        """Count a first delivery: due time to the client's receipt, and to the broker's answer."""
        if context.marks.disturbed(due_ms, delivery.t1):
            self.disturbed.add(delivery.t1 - due_ms)
            return
        self.receipt.add(delivery.t1 - due_ms)
        if delivery.now != ABSENT:
            self.broker.add(delivery.now - due_ms)


def check_sources(
    life: Life, number: int, group: GroupLife, context: Context, latenesses: Latenesses
) -> None:
    """Check all deliveries of one message in one group; the message has a recorded send."""
    assert life.sends
    assert group.deliveries
    if len(life.sends) == 1 and not life.moves:
        if not any(s.kind == Kind.NACK and s.due != ABSENT for s in group.settles):
            _check_plain(life, number, group, context, latenesses)
            return
    _Sweep(life, number, group).check(context, latenesses)


def check_unsent(life: Life, context: Context) -> None:
    """Match a message that no send names to a send whose answer, and so its id, was lost."""
    first = min((d for g in life.groups.values() for d in g.deliveries), key=by_t1)
    orphans = context.store.orphans
    for body in (first.body, 0) if first.body else tuple(orphans):
        count, since_ms = orphans.get(body, (0, FOREVER))
        if count and since_ms <= first.t1:
            # One lost answer accounts for one message.
            orphans[body] = (count - 1, since_ms)
            return
    text = "delivered, but no recorded send has this id"
    context.findings.violated("J", life.name, first.t1, text)


def _check_plain(
    life: Life, number: int, group: GroupLife, context: Context, latenesses: Latenesses
) -> None:
    """Check a message with one send and one due time: by far the most, so without a sweep."""
    findings = context.findings
    send = life.sends[0]
    first = group.deliveries[0]
    if len(group.deliveries) > 1:
        first = min(group.deliveries, key=by_t1)
    for delivery in group.deliveries:
        if delivery.t1 < send.t0:
            _report_premature(life, delivery, context)
            continue
        ended = None
        for end in group.settles:
            if end.kind == Kind.ACK and send.t0 <= end.t1 < delivery.t0:
                ended = end
        for end in life.cancels:
            if send.t0 <= end.t1 < delivery.t0 and applies(end, number):
                ended = end
        if ended is not None:
            _report_ended(life, delivery, ended, context)
        if delivery.body and send.body and delivery.body != send.body:
            if send.note != Result.KEPT:
                _report_altered(life, delivery, context)
        if send.due == ABSENT:
            continue
        findings.checked("B")
        if _stated_ms(delivery) < send.due:
            _report_early(life, delivery, send.due, context)
        if delivery.number == 1 or delivery is first:
            if send.t1 != FOREVER:
                latenesses.add(delivery, send.due, context)


class _Sweep:
    """Visits a group's deliveries in time order, and tracks the calls that may explain each.

    `_living` are sends that may have a living message, `_times` are calls whose due time may be in
    force. Both have only calls that began by the time that the sweep has reached.
    """

    def __init__(self, life: Life, number: int, group: GroupLife) -> None:
        self._life = life
        self._deliveries = group.deliveries
        self._sources = life.sources()
        moves = [m for m in life.moves if applies(m, number)]
        nacks = [s for s in group.settles if s.kind == Kind.NACK and s.due != ABSENT]
        replacing = [s for s in life.sends if s.note == Result.REPLACED]
        sources = [s for s in self._sources if s.note != Result.REPLACED]
        self._setters = sorted([*sources, *replacing, *moves, *nacks], key=by_t0)
        self._bodies_due = sorted((s for s in life.sends if s.note != Result.KEPT), key=by_t0)
        ends = [s for s in group.settles if s.kind == Kind.ACK]
        ends += [c for c in life.cancels if applies(c, number)]
        self._answered = sorted(
            (e for e in (*ends, *replacing, *moves, *nacks) if e.is_known), key=by_t1
        )
        self._received = sorted(self._deliveries, key=by_t1)
        self._by_lease = {d.lease: d for d in self._deliveries if d.lease}
        self._settled: set[int] = set()
        self._living: list[Event] = []
        self._times: list[Event] = []
        self._bodies: set[int] = set()
        self._last_end: Event | None = None
        self._replaced_due: int | None = None
        """The earliest due time that an acknowledged reschedule has replaced."""
        self._sources_seen = self._setters_seen = self._bodies_seen = self._answered_seen = 0

    def check(self, context: Context, latenesses: Latenesses) -> None:
        """Check each delivery, in the order in which the calls began."""
        life, findings = self._life, context.findings
        first = self._received[0]
        for delivery in sorted(self._deliveries, key=by_t0):
            self._pass_answers(delivery.t0)
            self._admit(delivery.t1)
            if not self._living or self._living[0].t0 > delivery.t1:
                if self._last_end is None:
                    _report_premature(life, delivery, context)
                else:
                    _report_ended(life, delivery, self._last_end, context)
                continue
            if delivery.body and self._bodies and 0 not in self._bodies:
                if delivery.body not in self._bodies:
                    _report_altered(life, delivery, context)
            times = [e for e in self._times if e.t0 <= delivery.t1]
            dues = [e.due for e in times]
            if not dues or ABSENT in dues:
                continue
            findings.checked("B")
            self._check_due(delivery, times, context)
            if delivery.number == 1 or delivery is first:
                if min(dues) == max(dues):
                    latenesses.add(delivery, dues[0], context)

    def _check_due(self, delivery: Event, times: list[Event], context: Context) -> None:
        stated_ms, due_ms = _stated_ms(delivery), min(e.due for e in times)
        replaced = self._replaced_due
        if stated_ms < due_ms:
            _report_early(self._life, delivery, due_ms, context)
            if replaced is not None and replaced <= stated_ms:
                text = f"delivered at {stated_ms}: a reschedule had moved {replaced} to {due_ms}"
                context.findings.violated("E", self._life.name, delivery.t1, text)
        elif replaced is not None and delivery.number == 1 and delivery.due != ABSENT:
            # Only a first attempt states the message's due time: a retry may state a later one. So
            # may a delivery after a call with a lost answer that was carried out past its due time.
            if all(e.is_known and e.due != delivery.due for e in times):
                text = (
                    f"delivered with due time {delivery.due}: a reschedule had moved it to {due_ms}"
                )
                context.findings.violated("E", self._life.name, delivery.t1, text)

    def _admit(self, last_ms: int) -> None:
        """Add the sends, due times and bodies of calls that began by `last_ms`."""
        while self._sources_seen < len(self._sources):
            if self._sources[self._sources_seen].t0 > last_ms:
                break
            self._living.append(self._sources[self._sources_seen])
            self._sources_seen += 1
        while self._setters_seen < len(self._setters):
            if self._setters[self._setters_seen].t0 > last_ms:
                break
            self._times.append(self._setters[self._setters_seen])
            self._setters_seen += 1
        while self._bodies_seen < len(self._bodies_due):
            if self._bodies_due[self._bodies_seen].t0 > last_ms:
                break
            self._bodies.add(self._bodies_due[self._bodies_seen].body)
            self._bodies_seen += 1

    def _pass_answers(self, first_ms: int) -> None:
        """Apply, in order, every call answered before `first_ms`: each removes possibilities."""
        while self._answered_seen < len(self._answered):
            event = self._answered[self._answered_seen]
            if event.t1 >= first_ms:
                break
            self._answered_seen += 1
            self._admit(event.t1)
            if event.kind == Kind.ACK or event.kind == Kind.CANCEL:
                self._end(event)
            else:
                self._override(event)

    def _override(self, setter: Event) -> None:
        """Remove the due times that were certainly set before an answered call set another."""
        kept = [e for e in self._times if e is setter or e.t1 >= setter.t0]
        if setter.kind == Kind.RESCHEDULE:
            for event in self._times:
                if event.t1 < setter.t0 and event.due != ABSENT:
                    replaced = self._replaced_due
                    self._replaced_due = event.due if replaced is None else min(replaced, event.due)
        self._times = kept

    def _end(self, end: Event) -> None:
        """Remove the message that an answered ack or cancel has ended."""
        certain_ms = end.t0
        if end.kind == Kind.ACK:
            if end.lease in self._settled:
                return
            if end.lease:
                self._settled.add(end.lease)
            # Sends since the acked delivery may have created another message.
            delivery = self._acked_by(end)
            certain_ms = -FOREVER if delivery is None else delivery.t0
        began = [s for s in self._living if s.t0 <= end.t1]
        if not began:
            return
        gone = [s for s in began if s.t1 < certain_ms]
        if not gone:
            gone = [next((s for s in began if s.is_known), began[0])]
        self._living = [s for s in self._living if not any(s is g for g in gone)]
        if len(gone) == len(began):
            # All messages that began by now may have ended, so none of their times is in force.
            self._times = [e for e in self._times if e.t1 > end.t1]
            self._replaced_due = None
            self._last_end = end

    def _acked_by(self, ack: Event) -> Event | None:
        """The delivery that an ack settled: of the same lease or, without a lease, the last one."""
        if ack.lease:
            return self._by_lease.get(ack.lease)
        index = bisect_right(self._received, ack.t0, key=by_t1)
        return self._received[index - 1] if index else None


def _stated_ms(delivery: Event) -> int:
    """Time of a delivery by the broker's clock or, if not stated, the client's time of receipt."""
    return delivery.t1 if delivery.now == ABSENT else delivery.now


def _report_premature(life: Life, delivery: Event, context: Context) -> None:
    text = "delivered before its send began"
    context.findings.violated("J", life.name, delivery.t1, text)


def _report_altered(life: Life, delivery: Event, context: Context) -> None:
    text = "delivered with a body that no send of this id had"
    context.findings.violated("J", life.name, delivery.t1, text)


def _report_early(life: Life, delivery: Event, due_ms: int, context: Context) -> None:
    stated_ms = _stated_ms(delivery)
    text = f"delivered at {stated_ms}, {due_ms - stated_ms} ms before it was due at {due_ms}"
    context.findings.violated("B", life.name, delivery.t1, text)


def _report_ended(life: Life, delivery: Event, end: Event, context: Context) -> None:
    rule, call = ("C", "ack") if end.kind == Kind.ACK else ("D", "cancel")
    text = f"delivered by a call begun at {delivery.t0}, after its {call} was answered at {end.t1}"
    context.findings.violated(rule, life.name, delivery.t1, text)


# ----------------------------------------------------------------------- answers during a lease


def check_answers(life: Life, number: int, group: GroupLife, context: Context) -> None:
    """Report leases that were open when a cancel or reschedule was answered `done`."""
    # With several sends the cancel may have ended another message of this id.
    if len(life.sends) != 1 or not group.deliveries:
        return
    findings = context.findings
    for cancel in life.cancels:
        if not _binds(cancel, number, context):
            continue
        for delivery in group.deliveries:
            if delivery.t0 <= cancel.t1 and held_at(delivery, group, cancel.t1, context):
                text = f"a cancel was answered at {cancel.t1}, but its lease was open then"
                findings.violated("D", life.name, delivery.t1, text)
    for move in life.moves:
        if move.due == ABSENT or not _binds(move, number, context):
            continue
        for delivery in group.deliveries:
            if delivery.t0 > move.t1 or not held_at(delivery, group, move.t1, context):
                continue
            later = [m.due for m in life.moves if m.t1 >= move.t0 and m.t0 <= delivery.t1]
            stated_ms = delivery.t1 if delivery.now == ABSENT else delivery.now
            if ABSENT not in later and stated_ms < min([move.due, *later]):
                text = (
                    f"a reschedule to {move.due} was answered at {move.t1}, "
                    f"but it was delivered at {stated_ms} and its lease was open then"
                )
                findings.violated("E", life.name, delivery.t1, text)


def _binds(event: Event, number: int, context: Context) -> bool:
    """Whether an answer proves anything about this group's leases.

    A call without a group acts in each group where it still can. With several groups, this group
    need not be among them.
    """
    if event.t1 == FOREVER or event.note == FORCED or not applies(event, number):
        return False
    return event.group == number or context.group_count == 1
