"""Repeated deliveries: the part of rule C about leases, and rule H for ids sent more than once.

The deliveries of a message in one group are sorted by time. Each one needs a reason why the lease
before it was over: a nack, its expiry, a kill or failover that lost it, or, if the id was sent
again, the end of the earlier message. The reasons are counted. Without a reason two leases were
open at once: a violation of C, or of H if the id was sent more than once.
"""

from collections.abc import Sequence
from itertools import pairwise

from delaylog.broker.history.events import ABSENT, FOREVER, Event, Kind, Result
from delaylog.broker.history.life import (
    Context,
    GroupLife,
    Life,
    applies,
    by_t0,
    expired_before,
)
from delaylog.broker.history.marks import Windows

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
