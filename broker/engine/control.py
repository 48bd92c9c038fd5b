"""Control: cancel and reschedule by id, truthfully.

Decided against applied state, wherever the message is (tail, file, preloaded, ready): the wheel
and the ready queue hold hints, and look at the state again before anything is handed out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from delaylog.broker.engine.applying import apply_move, apply_settle
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.finding import find_ids, find_origins
from delaylog.broker.engine.model import Found, Topic, blank_entries
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import (
    INDEX_ENTRY,
    NEVER_MS,
    STATE_ENTRY,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    StateArray,
)
from delaylog.storage.payloads import MoveDecision, SettleDecision

DONE = 0
TOO_LATE = 1
UNKNOWN = 2


@dataclass(frozen=True, slots=True)
class ControlResult:
    """Per message a code (done, too_late, unknown), what it was found as, and the log end seen."""

    codes: list[int]
    found: list[Found | None]
    deliver_at_ms: list[int]
    position: int


def find(
    state: EngineState, topic: Topic, ids: list[str] | None, origins: Int64Array | None, now_ms: int
) -> list[Found | None]:
    """Messages by id text or by origin ref."""
    if origins is not None:
        return find_origins(state, origins, topic, now_ms)
    return find_ids(state, topic, ids or [], now_ms)


def _unique(found: list[Found | None], good: list[int]) -> list[int]:
    """Of rows that can be changed, one per message: a repeated id in one call acts once."""
    seen: set[int] = set()
    out = []
    for at in good:
        item = found[at]
        assert item is not None
        if item.ref not in seen:
            seen.add(item.ref)
            out.append(at)
    return out


def cancel(
    state: EngineState,
    topic: Topic,
    found: list[Found | None],
    now_ms: int,
    *,
    force: bool = False,
) -> ControlResult:
    """Delete messages that wait or are ready; leased ones only by force."""
    movable = (MessageState.WAITING, MessageState.READY)
    codes, good = [], []
    for at, item in enumerate(found):
        if item is None:
            codes.append(UNKNOWN)
        elif item.state in movable or (force and item.state is MessageState.LEASED):
            codes.append(DONE)
            good.append(at)
        else:
            codes.append(TOO_LATE)
    items = [item for at in _unique(found, good) if (item := found[at]) is not None]
    if items:
        end_found(state, topic, items, MessageState.DELETED, Cause.CANCEL, now_ms)
    due = [int(item.row["deliver_at"]) if item is not None else 0 for item in found]
    return ControlResult(codes, found, due, state.log.end_position)


def end_found(
    state: EngineState,
    topic: Topic,
    items: list[Found],
    kind: MessageState,
    cause: Cause,
    now_ms: int,
    *,
    hide: bool = False,
) -> None:
    """End living messages, wherever they are; those under lease come out of it.

    `hide` marks them as forgotten, whatever the cause.
    """
    entries = blank_entries(len(items))
    entries["state"] = kind
    entries["cause"] = Cause.FORGOTTEN if hide else cause
    entries["attempts"] = [int(item.entry["attempts"]) for item in items]
    entries["time"] = now_ms
    leases = [
        int(item.entry["lease"]) if item.state is MessageState.LEASED else 0 for item in items
    ]
    _append_settle(state, topic, items, entries, now_ms, leases=np.array(leases, np.int64))
    _leave_ready(state, topic, items)


def change_ended(
    state: EngineState,
    topic: Topic,
    item: Found,
    now_ms: int,
    *,
    kind: MessageState | None = None,
    hide: bool = False,
) -> None:
    """Give an ended message another ended state, or mark it as forgotten."""
    entries = np.array([item.entry], STATE_ENTRY)
    if kind is not None:
        entries["state"] = kind
        entries["time"] = now_ms
    if hide:
        entries["cause"] = Cause.FORGOTTEN
    _append_settle(state, topic, [item], entries, now_ms, was=int(item.state))


def _leave_ready(state: EngineState, topic: Topic, items: list[Found]) -> None:
    """Tell the ready queue which of its refs mean nothing any more."""
    rows = np.array([item.row for item in items if item.state is MessageState.READY], INDEX_ENTRY)
    topic.default.ready.left(state.count_released(rows))


def _append_settle(
    state: EngineState,
    topic: Topic,
    items: list[Found],
    entries: StateArray,
    now_ms: int,
    *,
    leases: Int64Array | None = None,
    was: int = 0,
) -> None:
    settings = topic.settings
    dead = (entries["state"] == MessageState.DEAD).any()
    keep_ms = settings.dead_keep_ms if dead else settings.ended_keep_ms
    decision = SettleDecision(
        topic.number,
        1,
        np.array([item.ref for item in items], np.int64),
        entries,
        leases,
        np.array([item.origin for item in items], np.int64),
        now_ms + keep_ms,
        was,
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end)


def reschedule(
    state: EngineState,
    topic: Topic,
    found: list[Found | None],
    now_ms: int,
    *,
    deliver_at_ms: Int64Array | int | None,
    priority: int | None = None,
) -> ControlResult:
    """Give waiting or ready messages a new time (a past one means now) or priority."""
    n = len(found)
    if deliver_at_ms is not None:
        if int(np.max(deliver_at_ms)) > now_ms + state.limits.horizon_ms:
            raise BadRequestError(
                f"deliver_at_ms is over the horizon of {state.limits.horizon_ms} ms",
                field="deliver_at_ms",
            )
        if int(np.min(deliver_at_ms)) < 0:
            raise BadRequestError("deliver_at_ms must not be negative", field="deliver_at_ms")
    codes, good = [], []
    for at, item in enumerate(found):
        if item is None:
            codes.append(UNKNOWN)
        elif item.state in (MessageState.WAITING, MessageState.READY):
            codes.append(DONE)
            good.append(at)
        else:
            codes.append(TOO_LATE)
    good = _unique(found, good)
    due_out = [int(item.row["deliver_at"]) if item is not None else 0 for item in found]
    if good:
        items = [item for at in good if (item := found[at]) is not None]
        old_due = np.array([int(item.row["deliver_at"]) for item in items], np.int64)
        if deliver_at_ms is None:
            due = np.maximum(old_due, now_ms)
        else:
            asked = np.broadcast_to(np.asarray(deliver_at_ms, np.int64), (n,))[good]
            due = np.maximum(asked, now_ms)
        expires = np.array([int(item.row["expires_at"]) for item in items], np.int64)
        # A ttl counts from the due time, so it moves along with it.
        expires = np.where(expires == NEVER_MS, NEVER_MS, expires - old_due + due)
        kept = np.array([int(item.row["priority"]) for item in items], np.int64)
        decision = MoveDecision(
            topic=topic.number,
            group=1,
            tag=state.tag,
            hour_floor=state.hour_floor,
            cause=Cause.RESCHEDULE,
            refs=np.array([item.ref for item in items], np.int64),
            deliver_at_ms=due,
            expires_at_ms=expires,
            priority=kept if priority is None else np.full(len(items), priority, np.int64),
            attempts=np.array([int(item.entry["attempts"]) for item in items], np.int64),
            leases=None,
        )
        _, end = state.append(FrameKind.MOVE, decision.encode(), now_ms)
        apply_move(state, decision, now_ms, end)
        _leave_ready(state, topic, items)
        for at, moment in zip(good, due.tolist(), strict=True):
            due_out[at] = moment
    return ControlResult(codes, found, due_out, state.log.end_position)
