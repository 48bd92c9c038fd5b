"""Rule A: no acknowledged message is lost. Also counts how each message ended.

A message must have been delivered if its due time plus `bound_ms` lies before the end of the
history. The latest due time that may be in force counts, and every possible ending is accepted: a
delivery, a cancel, an expiry, a death, a receive whose answer was lost. If the last send of an id
certainly created a new message, only events since that send count.
"""

from delaylog.broker.history.events import ABSENT, FOREVER, Event, Kind, Result
from delaylog.broker.history.findings import Fates
from delaylog.broker.history.life import Context, Life, by_t0


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
    if deliveries:
        fates.delivered += 1
        if is_owed and not is_cancelled and context.marks.groups:
            _check_groups(life, last, due_ms, end_ms, context)
    elif is_cancelled:
        fates.cancelled += 1
    elif expires_ms is not None and expires_ms <= end_ms:
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
