"""Rules about the deliveries of a message: it is not lost (A), and not repeated (C, H).

A: no acknowledged message is lost. A message must have been delivered if its due time plus
`bound_ms` lies before the end of the history. The latest due time that may be in force counts, and
every possible ending is accepted: a delivery, a cancel, an expiry, a death, a receive whose answer
was lost. If the last send of an id certainly created a new message, only events since that send
count. How each message ended is counted, too.

C about leases, and H for ids sent more than once: the deliveries of a message in one group are
sorted by time. Each one needs a reason why the lease before it was over: a nack, its expiry, a kill
or failover that lost it, or, if the id was sent again, the end of the earlier message. The reasons
are counted. Without a reason two leases were open at once: a violation of C, or of H if the id was
sent more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from delaylog.broker.history.events import ABSENT, FOREVER, Event, Kind, Result
from delaylog.broker.history.life import (
    Context,
    GroupLife,
    Life,
    Windows,
    applies,
    by_t0,
    expired_before,
)
from delaylog.broker.history.report import Fates

# ---------------------------------------------------------------------------- lost messages (A)


def check_completeness(life: Life, context: Context, end_ms: int, fates: Fates) -> None:
    """Count how the message ended, and report it if it is lost in a group that must see it."""
    acknowledged = [s for s in life.sources() if s.is_known]
    if not acknowledged:
        return
    last = max(acknowledged, key=by_t0)
    since_ms = last.t0 if _is_fresh(life, last) else ABSENT
    fates.acknowledged += 1
    deliveries = [d for g in life.groups.values() for d in g.deliveries if d.t1 >= since_ms]
    if any(s.kind == Kind.ACK and s.is_known for g in life.groups.values() for s in g.settles):
        fates.acked += 1
    due_ms, expires_ms = _times(life, last)
    is_owed = due_ms + context.settings.bound_ms < end_ms
    if is_owed:
        context.findings.checked("A")
    is_cancelled = any(c.t1 >= since_ms for c in life.cancels)
    may_expire = expires_ms is not None and expires_ms <= end_ms
    if deliveries:
        fates.delivered += 1
        # A group in which it expired or died, or whose answer was lost, has not seen it.
        excused = is_cancelled or may_expire or life.dead or life.unseen
        if is_owed and not excused and context.marks.groups:
            _check_groups(life, last, due_ms, end_ms, context)
    elif is_cancelled:
        fates.cancelled += 1
    elif may_expire:
        fates.expired += 1
    elif any(d.t1 >= since_ms for d in life.dead):
        fates.dead += 1
    elif any(u.t1 >= since_ms for u in life.unseen):
        fates.unseen += 1
    elif not is_owed:
        fates.not_due += 1
    else:
        fates.lost += 1
        text = f"sent at {last.t1} and due at {due_ms}, but not delivered by {end_ms}"
        context.findings.violated("A", life.name, due_ms, text)


def _check_groups(life: Life, last: Event, due_ms: int, end_ms: int, context: Context) -> None:
    """Report groups that were announced before the send but did not get the message."""
    names = context.store.group_names
    seen = {names[number] for number, group in life.groups.items() if group.deliveries}
    for name, made_ms in context.marks.groups.items():
        if made_ms < last.t0 and name not in seen:
            text = f"due at {due_ms}, but not delivered in group {name!r} by {end_ms}"
            context.findings.violated("A", life.name, due_ms, text)


def _is_fresh(life: Life, last: Event) -> bool:
    """Whether the last acknowledged send certainly created a new message under a used id."""
    if len(life.sends) == 1:
        return False  # With one send, all events of the id belong to it.
    if last.note == Result.CREATED:
        return True
    earlier = sum(1 for s in life.sends if s is not last and s.t0 <= last.t1)
    cancels = sum(1 for c in life.cancels if c.t1 < last.t0)
    acks = []
    for group in life.groups.values():
        ended = [s for s in group.settles if s.kind == Kind.ACK and s.t1 < last.t0]
        acks.append(len({s.lease for s in ended}))
    return cancels + min(acks, default=0) >= earlier


def _times(life: Life, last: Event) -> tuple[int, int | None]:
    """Return the latest possible due time, and the earliest possible expiry or None."""
    due_ms = last.t1 if last.due == ABSENT else max(last.due, last.t1)
    expires_ms = None if last.until == ABSENT else last.until
    for send in life.sends:
        if send.note == Result.REPLACED or not send.is_known:
            due_ms = max(due_ms, send.due)
            if send.until != ABSENT and (expires_ms is None or send.until < expires_ms):
                expires_ms = send.until
    for move in life.moves:
        if move.due == ABSENT:
            due_ms = FOREVER  # The new due time is unknown, so no delivery can be demanded.
            continue
        due_ms = max(due_ms, move.due, move.t0)
        moved_ms = move.until
        if moved_ms == ABSENT and last.until != ABSENT and last.due != ABSENT:
            # The time from due to expiry stays the same, so the expiry moves with the due time.
            moved_ms = move.due + last.until - last.due
        if moved_ms != ABSENT and (expires_ms is None or moved_ms < expires_ms):
            expires_ms = moved_ms
    return due_ms, expires_ms


# ------------------------------------------------------------------------------- repeats (C, H)

CAUSES = ("nack", "lease", "kill", "failover")


class Duplicates:
    """Number of repeats by cause, and the age of the oldest delivery that a fault repeated."""

    __slots__ = ("by_cause", "repeated_span_ms_max")

    def __init__(self) -> None:
        self.by_cause = dict.fromkeys(CAUSES, 0)
        self.repeated_span_ms_max = 0


def check_duplicates(
    life: Life, number: int, group: GroupLife, context: Context, duplicates: Duplicates
) -> None:
    """Demand a reason for every delivery of a group but the first."""
    sources = life.sources()
    made = Windows((s.t0, s.t1, "") for s in sources) if len(sources) > 1 else None
    ends = _possible_ends(life, number, group) if made else None
    ordered = _in_order(group.deliveries)
    for first, second in pairwise(ordered):
        settles = group.settles_of(first, second.t1)
        if made and ends and _is_another(first, second, made, ends):
            continue
        cause = _cause(first, second, group, settles, context)
        if cause is None:
            _report(life, first, second, len(sources) > 1, context)
            continue
        duplicates.by_cause[cause] += 1
        if cause == "kill" or cause == "failover":
            span_ms = context.marks.repeated_span_ms(first.t1, second.t1)
            duplicates.repeated_span_ms_max = max(duplicates.repeated_span_ms_max, span_ms)
            bound_ms = context.settings.repeat_bound_ms
            if bound_ms is not None and span_ms > bound_ms:
                text = (
                    f"delivered {span_ms} ms before a {cause} and again after it; repeats are "
                    f"allowed of the last {bound_ms} ms only"
                )
                context.findings.violated("C", life.name, second.t1, text)


def check_creations(life: Life, context: Context) -> None:
    """Rule H: between two sends answered `created` the first message must have been able to end."""
    findings = context.findings
    findings.checked("H")
    created = sorted((s for s in life.sends if s.note == Result.CREATED and s.is_known), key=by_t0)
    if len(created) < 2:
        return
    moments = [*life.cancels, *life.dead, *life.unseen]
    for group in life.groups.values():
        # A delivery counts: a send during the lease creates a second message.
        moments += group.deliveries
        moments += group.settles
    # Messages expire by the broker's clock, assumed to be within the bound of the clients' clocks.
    bound_ms = context.settings.bound_ms
    expiries = [s.until for s in life.sends if s.until != ABSENT]
    ends = Windows(
        [(m.t0, m.t1, "") for m in moments] + [(e - bound_ms, e + bound_ms, "") for e in expiries]
    )
    for first, second in pairwise(created):
        if ends.meets(first.t0, second.t1) or context.store.unseen_ms <= second.t1:
            continue
        if expiries and (life.moves or context.marks.clock_stepped(-FOREVER, second.t1)):
            continue  # The time of the expiry is uncertain.
        text = f"created by {first.t1} and again by {second.t1}, and nothing ended the first"
        findings.violated("H", life.name, second.t1, text)


def _in_order(deliveries: list[Event]) -> list[Event]:
    """Sort by the broker's clock if all deliveries state it, else by receipt.

    Receipt order is less certain, since one answer can overtake another. It is used also if the
    broker's clock contradicts the clients'.
    """
    if all(d.now != ABSENT for d in deliveries):
        ordered = sorted(deliveries, key=lambda d: (d.now, d.t1, d.number, d))
        if not any(first.t0 > second.t1 for first, second in pairwise(ordered)):
            return ordered
    return sorted(deliveries, key=lambda d: (d.t1, d.number, d))


def _cause(
    first: Event, second: Event, group: GroupLife, settles: Sequence[Event], context: Context
) -> str | None:
    if any(s.kind == Kind.NACK and s.t1 != FOREVER for s in settles):
        return "nack"
    if expired_before(first, second, settles, context):
        return "lease"
    if first.now == ABSENT or second.now == ABSENT:
        # Receipts do not tell the order of two calls that overlap, so try the other order too.
        others = group.settles_of(second, first.t1) if second.t0 <= first.t1 else None
        if others is not None and expired_before(second, first, others, context):
            return "lease"
    if any(s.kind == Kind.NACK for s in settles) or group.stray_ms <= second.t1:
        return "nack"
    return context.marks.lease_loss(first.t0, second.t1)


def _is_another(first: Event, second: Event, made: Windows, ends: Windows) -> bool:
    """Whether the second delivery may be of another message, sent after the first had ended."""
    return ends.meets(first.t0, second.t1) and made.meets(first.t0, second.t1)


def _possible_ends(life: Life, number: int, group: GroupLife) -> Windows:
    ends = [s for s in group.settles if s.kind == Kind.ACK]
    ends += [c for c in life.cancels if applies(c, number)]
    return Windows((e.t0, e.t1, "") for e in ends)


def _report(life: Life, first: Event, second: Event, is_reused: bool, context: Context) -> None:
    rule = "H" if is_reused else "C"
    text = (
        f"delivered again by a call of {second.t0} to {second.t1} while the lease of a call "
        f"of {first.t0} to {first.t1} was open"
    )
    context.findings.violated(rule, life.name, second.t1, text)
