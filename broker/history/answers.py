"""Cancels and reschedules that contradict an open lease: the rest of rules D and E.

A cancel or reschedule without `force` acts on waiting and ready messages only; for a leased message
it must answer `too_late`. So it is a violation if one was answered `done` while a lease was
certainly open, whichever call began first. This also catches a receive that had been waiting since
before the cancel.
"""

from delaylog.broker.history.events import ABSENT, FORCED, FOREVER, Event
from delaylog.broker.history.life import Context, GroupLife, Life, applies, held_at


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
