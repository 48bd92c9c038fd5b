"""Answers that contradict an open lease: the rest of rules D and E.

A cancel or reschedule that is not forced acts on waiting and ready messages only, and must say
`too_late` of a leased one. So an acknowledged one and a lease that was certainly open at its time
contradict each other in whichever order they came. This finds what "begun after the answer" cannot:
a consumer's call that had been waiting since before the cancel.
"""

from delaylog.broker.history.events import ABSENT, FORCED, FOREVER, Event
from delaylog.broker.history.life import Context, GroupLife, Life, applies, held_at


def check_answers(life: Life, number: int, group: GroupLife, context: Context) -> None:
    """Look for leases that an acknowledged cancel or reschedule says cannot have been open."""
    # With several sends it may be another message of the id that was cancelled.
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

    Without a group it acted wherever it still could; with several groups that may not be this one.
    """
    if event.t1 == FOREVER or event.note == FORCED or not applies(event, number):
        return False
    return event.group == number or context.group_count == 1
