"""Control: cancel, reschedule and replay, truthfully.

Decided against applied state, wherever the message is (tail, file, preloaded, ready): the wheel
and the ready queue hold hints, and look at the state again before anything is handed out. All of
it works on columns; a message that is named twice in one call is changed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.move_frames import apply_move
from delaylog.broker.engine.apply.state_frames import apply_settle
from delaylog.broker.engine.control.finding import find_living, stored_ids
from delaylog.broker.engine.control.found import FoundColumns
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.model import Topic, blank_entries
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import rising, some
from delaylog.storage.columns.whole_rows import copy_rows, take_rows
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
    """Per message a code (done, too_late, unknown), what it was found as, and the log end seen."""

    codes: npt.NDArray[np.uint8]
    found: FoundColumns
    deliver_at_ms: Int64Array
    """When it is due now, as far as it is known."""
    position: int


def _judge(
    found: FoundColumns, can: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], Int64Array, Int64Array]:
    """(codes; slots to change, one a message; for each slot that is done its place in those).

    Of a message that is named twice the last slot counts, as if each were a call of its own.
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
    found: FoundColumns,
    now_ms: int,
    *,
    force: bool = False,
    dead: bool = False,
) -> ControlResult:
    """Delete messages that wait or are ready; leased ones only by force.

    `dead` takes dead letters too, out of their queue.
    """
    living = found.states <= (_LEASED if force else _READY)
    letters = (found.states == _DEAD) & dead
    codes, at, _ = _judge(found, found.known & (living | letters))
    ended, gone = at[living[at]], at[letters[at]]
    if len(ended):
        end_found(state, topic, found.take(ended), MessageState.DELETED, Cause.CANCEL, now_ms)
    if len(gone):
        kind, cause = MessageState.DELETED, Cause.CANCEL
        change_ended(state, topic, found.take(gone), now_ms, kind=kind, cause=cause)
    due = found.rows["deliver_at"].astype(np.int64)
    return ControlResult(codes, found, due, state.log.end_position)


def end_found(
    state: EngineState,
    topic: Topic,
    items: FoundColumns,
    kind: MessageState,
    cause: Cause,
    now_ms: int,
) -> None:
    """End living messages, wherever they are; those under lease come out of it.

    All items are known. One whose cause is `FORGOTTEN` is shown to nobody.
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
    item: FoundColumns,
    now_ms: int,
    *,
    kind: MessageState | None = None,
    cause: Cause | None = None,
) -> None:
    """Give messages that ended alike another ended state or cause."""
    entries = copy_rows(item.entries)
    if kind is not None:
        entries["state"] = kind
        entries["time"] = now_ms
    if cause is not None:
        entries["cause"] = cause
    _append_settle(state, topic, item, entries, now_ms)


def _leave_ready(state: EngineState, items: FoundColumns) -> None:
    """Tell the ready queue which of its refs mean nothing any more."""
    items.group.ready.left(state.count_released(take_rows(items.rows, items.states == _READY)))


def _append_settle(
    state: EngineState,
    topic: Topic,
    items: FoundColumns,
    entries: StateArray,
    now_ms: int,
    leases: Int64Array | None = None,
) -> None:
    """`leases` of living messages; those that had ended have none, and all ended alike."""
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
        int(items.states[0]) if leases is None else 0,
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end)


def check_due(state: EngineState, deliver_at_ms: Int64Array | int, now_ms: int) -> None:
    """Refuse new due times that no message may have."""
    if int(np.max(deliver_at_ms)) > now_ms + state.limits.horizon_ms:
        raise BadRequestError(
            f"deliver_at_ms is over the horizon of {state.limits.horizon_ms} ms",
            field="deliver_at_ms",
        )
    if int(np.min(deliver_at_ms)) < 0:
        raise BadRequestError("deliver_at_ms must not be negative", field="deliver_at_ms")


def reschedule(
    state: EngineState,
    topic: Topic,
    found: FoundColumns,
    now_ms: int,
    *,
    deliver_at_ms: Int64Array | int | None,
    priority: int | None = None,
) -> ControlResult:
    """Give waiting or ready messages a new time (a past one means now) or priority."""
    if deliver_at_ms is not None:
        check_due(state, deliver_at_ms, now_ms)
    can = found.known & (found.states <= _READY)
    change = _Move(Cause.RESCHEDULE, deliver_at_ms, priority)
    return _move(state, topic, found, can, now_ms, change)


def replay(
    state: EngineState,
    topic: Topic,
    found: FoundColumns,
    now_ms: int,
    *,
    deliver_at_ms: Int64Array | int | None = None,
) -> ControlResult:
    """Let dead messages live again, at a time or now; they begin with no attempts."""
    if deliver_at_ms is not None:
        check_due(state, deliver_at_ms, now_ms)
    can = found.known & (found.states == _DEAD)
    if topic.erased:
        # Other nodes may have erased it already.
        can &= found.rows["sent_position"] >= topic.erased
    named = np.flatnonzero(can & (found.rows["id_hash"] != 0))
    if len(named):
        can[named[_id_taken(state, topic, found.take(named))]] = False
    due = now_ms if deliver_at_ms is None else deliver_at_ms
    return _move(state, topic, found, can, now_ms, _Move(Cause.REPLAY, due))


def _id_taken(state: EngineState, topic: Topic, dead: FoundColumns) -> npt.NDArray[np.bool_]:
    """Which dead messages have an id that another message has by now: it is one's at a time.

    Of several dead ones of an id the first is to live.
    """
    hashes = dead.rows["id_hash"]
    origins = state.ids.get_column(topic.number, hashes)
    ids = stored_ids(state, dead.refs, dead.rows)
    taken = np.zeros(len(dead), np.bool_)
    sizes = dead.rows["id_size"].astype(np.int64)
    for group in topic.groups.values():
        at, living = find_living(state, topic, origins, ids, sizes, group)
        # A message that is dead here may itself live in another group.
        taken[at[living.origins != dead.origins[at]]] = True
        if group.made_gate is not None and group.gate.expecting:
            holders = (group.gate.predecessor(int(hash_)) for hash_ in hashes)
            pairs = zip(holders, dead.origins.tolist(), strict=True)
            taken |= [holder is not None and holder != origin for holder, origin in pairs]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    taken |= dead.origins != dead.origins[first][which]
    return taken


class _Move(NamedTuple):
    """What changes with messages that live on in new rows."""

    cause: Cause
    deliver_at_ms: Int64Array | int | None
    """None: they keep their times, as far as those are not past."""
    priority: int | None = None
    """None: they keep theirs."""


def _move(
    state: EngineState,
    topic: Topic,
    found: FoundColumns,
    can: npt.NDArray[np.bool_],
    now_ms: int,
    move: _Move,
) -> ControlResult:
    """Let messages live on in new rows."""
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
    # A ttl counts from the due time, so it moves along with it; in a new life it is whole again,
    # whatever the retries of the old one left of it.
    first = state.hours.rows(items.origins) if ended else items.rows
    ttl = first["expires_at"].astype(np.int64) - first["deliver_at"].astype(np.int64)
    expires = np.where(expires == NEVER_MS, NEVER_MS, ttl + due)
    kept = items.rows["priority"].astype(np.int64)
    decision = MoveDecision(
        topic=topic.number,
        group=found.group.number,
        tag=state.tag,
        hour_floor=state.hour_floor,
        cause=move.cause,
        refs=items.refs,
        deliver_at_ms=due,
        expires_at_ms=expires,
        priority=kept if move.priority is None else np.full(len(items), move.priority, np.int64),
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
