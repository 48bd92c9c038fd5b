"""Control: cancel, reschedule and replay, with truthful results.

Each decision is made on the applied state, wherever the message is: in a tail, in a file, in the
wheel or in a ready queue. The wheel and the queues contain hints, and states are checked again
before a message is handed out. All work is on columns; a message that is named twice in one call is
changed once.

A call acts in every group where the message can still be changed (`in_groups`). A message is done
if it was changed in any group; the result then names the groups that were too late. It is too late
if it was changed in none. For a topic with one group this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.lease_frames import apply_settle
from delaylog.broker.engine.apply.move_frames import apply_move
from delaylog.broker.engine.deliver.expiry import end_expired, find_living
from delaylog.broker.engine.lookup.find_messages import stored_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic, blank_entries
from delaylog.broker.engine.send.due_times import check_due_times
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import copy_rows, rising, some, take_rows
from delaylog.storage.layout import (
    NEVER_MS,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    StateArray,
)
from delaylog.storage.log.payloads import MoveDecision, SettleDecision

DONE: Final = 0
TOO_LATE: Final = 1
UNKNOWN: Final = 2
_READY: Final = int(MessageState.READY)
_LEASED: Final = int(MessageState.LEASED)
_DEAD: Final = int(MessageState.DEAD)


@dataclass(frozen=True, slots=True)
class ControlResult:
    """For each message: a code (done, too_late, unknown), and the message before the change."""

    codes: npt.NDArray[np.uint8]
    found: FoundMessages
    deliver_at_ms: Int64Array
    """The due times after the change; 0 for unknown messages."""
    position: int
    """Log position that must be committed before this is answered."""


def _judge(
    found: FoundMessages, can: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], Int64Array, Int64Array]:
    """(codes; slots to change, one a message; for each slot that is done its index in those).

    If a message is named twice, its last slot counts, as if each were a separate call.
    """
    codes = np.where(can, DONE, np.where(found.known, TOO_LATE, UNKNOWN)).astype(np.uint8)
    slots = np.flatnonzero(can)
    refs = found.refs[slots]
    if rising(refs):
        return codes, slots, np.arange(len(slots))
    _, last, which = np.unique(refs[::-1], return_index=True, return_inverse=True)
    return codes, slots[len(slots) - 1 - last], which[::-1]


def cancel(
    state: EngineState,
    topic: Topic,
    found: FoundMessages,
    now_ms: int,
    *,
    force: bool = False,
    dead: bool = False,
    untried: bool = False,
) -> ControlResult:
    """Delete messages that wait or are ready, and leased ones with `force`.

    With `dead`, dead letters are deleted too. With `untried`, only messages at which no attempt has
    begun are deleted.
    """
    end_expired(state, topic, found, now_ms)
    living = found.states <= (_LEASED if force else _READY)
    letters = (found.states == _DEAD) & dead
    can = found.known & (living | letters)
    if untried:
        can &= found.entries["attempts"] == 0
    codes, at, _ = _judge(found, can)
    ended, gone = at[living[at]], at[letters[at]]
    if len(ended):
        end_found(state, topic, found.take(ended), MessageState.CANCELLED, Cause.CANCEL, now_ms)
    if len(gone):
        kind, cause = MessageState.CANCELLED, Cause.CANCEL
        change_ended(state, topic, found.take(gone), now_ms, kind=kind, cause=cause)
    due = found.rows["deliver_at"].astype(np.int64)
    return ControlResult(codes, found, due, state.log.end_position)


def end_found(
    state: EngineState,
    topic: Topic,
    items: FoundMessages,
    kind: MessageState,
    cause: Cause,
    now_ms: int,
) -> None:
    """End living messages, whether they wait, are ready or are under lease.

    All items must be known. Messages with the cause `FORGOTTEN` are not shown to clients.
    """
    entries = blank_entries(len(items))
    entries["state"] = kind
    entries["cause"] = cause
    entries["attempts"] = items.entries["attempts"]
    entries["time"] = now_ms
    leases = np.where(items.states == _LEASED, items.entries["lease"].astype(np.int64), 0)
    _append_settle(state, topic, items, entries, now_ms, leases)
    _leave_ready(state, items)


def change_ended(
    state: EngineState,
    topic: Topic,
    item: FoundMessages,
    now_ms: int,
    *,
    kind: MessageState | None = None,
    cause: Cause | None = None,
) -> None:
    """Change the ended state or the cause of messages that ended with the same state."""
    entries = copy_rows(item.entries)
    if kind is not None:
        entries["state"] = kind
        entries["time"] = now_ms
    if cause is not None:
        entries["cause"] = cause
    _append_settle(state, topic, item, entries, now_ms)


def _leave_ready(state: EngineState, items: FoundMessages) -> None:
    """Tell the ready queues how many of their refs are stale now."""
    items.group.ready.left(state.count_released(take_rows(items.rows, items.states == _READY)))


def _append_settle(
    state: EngineState,
    topic: Topic,
    items: FoundMessages,
    entries: StateArray,
    now_ms: int,
    leases: Int64Array | None = None,
) -> None:
    """`leases` = None if the messages had ended, all with the same state."""
    settings = topic.settings
    keep_ms = settings.dead_keep_ms if some(entries["state"] == _DEAD) else settings.ended_keep_ms
    decision = SettleDecision(
        topic.number,
        items.group.number,
        items.refs,
        entries,
        leases,
        items.origins,
        now_ms + keep_ms,
        int(items.entries["state"][0]) if leases is None else 0,
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end, now_ms)


def reschedule(
    state: EngineState,
    topic: Topic,
    found: FoundMessages,
    now_ms: int,
    *,
    deliver_at_ms: Int64Array | int | None,
    priority: int | None = None,
    untried: bool = False,
    accepted: bool = False,
) -> ControlResult:
    """Give waiting or ready messages a new due time (a past one means now) or priority.

    With `untried`, only messages at which no attempt has begun are changed. `accepted` = the due
    time was checked before, by the clock and the horizon of that time.
    """
    if deliver_at_ms is not None and not accepted:
        check_due_times(deliver_at_ms, now_ms, state.limits.horizon_ms)
    end_expired(state, topic, found, now_ms)
    can = found.known & (found.states <= _READY)
    if untried:
        can &= found.entries["attempts"] == 0
    change = _Move(Cause.RESCHEDULE, deliver_at_ms, priority)
    return _move(state, topic, found, can, now_ms, change)


def replay(
    state: EngineState,
    topic: Topic,
    found: FoundMessages,
    now_ms: int,
    *,
    deliver_at_ms: Int64Array | int | None = None,
    accepted: bool = False,
) -> ControlResult:
    """Revive dead messages, at a due time or now; their attempts start at zero.

    `accepted` = as of `reschedule`.
    """
    if deliver_at_ms is not None and not accepted:
        check_due_times(deliver_at_ms, now_ms, state.limits.horizon_ms)
    end_expired(state, topic, found, now_ms)
    can = found.known & (found.states == _DEAD)
    if topic.erased:
        # Other nodes may have erased these messages already.
        can &= found.rows["sent_position"] >= topic.erased
    named = np.flatnonzero(can & (found.rows["id_hash"] != 0))
    if len(named):
        can[named[_id_taken(state, topic, found.take(named), now_ms)]] = False
    due = now_ms if deliver_at_ms is None else deliver_at_ms
    return _move(state, topic, found, can, now_ms, _Move(Cause.REPLAY, due))


def _id_taken(
    state: EngineState, topic: Topic, dead: FoundMessages, now_ms: int
) -> npt.NDArray[np.bool_]:
    """Which dead messages have an id that another living message has now.

    Of several dead messages with one id, only the first may be revived.
    """
    hashes = dead.rows["id_hash"]
    origins = state.ids.get_column(topic.number, hashes)
    ids = stored_ids(state, dead.refs, dead.rows)
    taken = np.zeros(len(dead), np.bool_)
    sizes = dead.rows["id_size"].astype(np.int64)
    for group in topic.groups.values():
        at, living = find_living(state, topic, origins, ids, sizes, group=group, now_ms=now_ms)
        # The living message may be the same one, which is dead in this group only.
        taken[at[living.origins != dead.origins[at]]] = True
        if group.made_gate is not None and group.gate.expecting:
            owners = (group.gate.predecessor(int(hash_)) for hash_ in hashes)
            pairs = zip(owners, dead.origins.tolist(), strict=True)
            taken |= [owner is not None and owner != origin for owner, origin in pairs]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    taken |= dead.origins != dead.origins[first][which]
    return taken


class _Move(NamedTuple):
    """How messages change that move to new rows."""

    cause: Cause
    deliver_at_ms: Int64Array | int | None
    """None = keep their due times, or now if those are past."""
    priority: int | None = None
    """None = keep their priorities."""


def _move(
    state: EngineState,
    topic: Topic,
    found: FoundMessages,
    can: npt.NDArray[np.bool_],
    now_ms: int,
    move: _Move,
) -> ControlResult:
    """Move messages to new rows."""
    codes, at, which = _judge(found, can)
    due_out = found.rows["deliver_at"].astype(np.int64)
    if len(at) == 0:
        return ControlResult(codes, found, due_out, state.log.end_position)
    items = found.take(at)
    old_due = items.rows["deliver_at"].astype(np.int64)
    if move.deliver_at_ms is None:
        asked = old_due
    else:
        asked = np.broadcast_to(np.asarray(move.deliver_at_ms, np.int64), (len(found),))[at]
    due = np.maximum(asked, now_ms)
    expires = items.rows["expires_at"].astype(np.int64)
    ended = move.cause is Cause.REPLAY
    # A ttl counts from the due time, so with a new one the message gets its full ttl again, however
    # much of it the retries had used up.
    first = state.hours.rows(items.origins)
    ttl = first["expires_at"].astype(np.int64) - first["deliver_at"].astype(np.int64)
    kept = (expires == NEVER_MS) | ((due == old_due) & (not ended))
    expires = np.where(kept, expires, ttl + due)
    priority = items.rows["priority"].astype(np.int64)
    decision = MoveDecision(
        topic=topic.number,
        group=found.group.number,
        tag=state.tag,
        hour_floor=state.hour_floor,
        cause=move.cause,
        refs=items.refs,
        deliver_at_ms=due,
        expires_at_ms=expires,
        priority=priority
        if move.priority is None
        else np.full(len(items), move.priority, np.int64),
        attempts=np.zeros(len(items), np.int64)
        if ended
        else items.entries["attempts"].astype(np.int64),
        leases=None,
        from_ended=ended,
    )
    _, end = state.append(FrameKind.MOVE, decision.encode(), now_ms)
    apply_move(state, decision, now_ms, end, items.rows)
    if not ended:
        _leave_ready(state, items)
    due_out[np.flatnonzero(can)] = due[which]
    return ControlResult(codes, found, due_out, state.log.end_position)


@dataclass(frozen=True, slots=True)
class GroupedResult:
    """A result over all groups, and for each message the groups that were too late."""

    result: ControlResult
    late: list[list[str]]

    def late_for(self, at: int) -> list[str]:
        """Groups that were too late for a message that was changed in another group."""
        return self.late[at] if self.late else []


def in_groups(
    topic: Topic,
    find: Callable[[Group], FoundMessages],
    act: Callable[[FoundMessages], ControlResult],
) -> GroupedResult:
    """Look messages up as each group sees them, and act on them in each."""
    if topic.plain or not topic.groups:
        # Without groups no message is visible.
        return GroupedResult(act(find(topic.default)), [])
    best: ControlResult | None = None
    late: list[list[str]] = []
    for group in topic.groups.values():
        found = find(group)
        # UNKNOWN is the greatest code, so a group that does not know a message never wins.
        result = act(found)
        if best is None:
            best, late = result, [[] for _ in range(len(found))]
        for at in np.flatnonzero(result.codes == TOO_LATE).tolist():
            late[at].append(group.name)
        if best is not result:
            better = result.codes < best.codes
            best = _merged(best, result, better)
    assert best is not None, "a topic that is not plain has groups"
    for at in np.flatnonzero(best.codes != DONE).tolist():
        late[at] = []
    return GroupedResult(best, late)


def _merged(one: ControlResult, other: ControlResult, better: np.ndarray) -> ControlResult:
    """For each message the better of two results."""
    found = one.found
    columns = {}
    for name in ("known", "origins", "refs", "rows", "entries", "states"):
        column = getattr(found, name).copy()
        column[better] = getattr(other.found, name)[better]
        columns[name] = column
    return ControlResult(
        np.minimum(one.codes, other.codes),
        FoundMessages(**columns, group=found.group),
        np.where(better, other.deliver_at_ms, one.deliver_at_ms),
        max(one.position, other.position),
    )
