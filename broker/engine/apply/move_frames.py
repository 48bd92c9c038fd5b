"""What a MOVE frame does: messages get new rows, due at another time.

The state of the old row points to the new one (`forward`), and the new row names the message's
first row (`origin`), so that every ref a client was ever given leads to the message.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.apply.lease_frames import leave_leases
from delaylog.broker.engine.apply.send_frames import expose
from delaylog.broker.engine.deliver.failures import RETURNS, Failed, note_failures
from delaylog.broker.engine.deliver.ready_again import free_keys
from delaylog.broker.engine.state import EngineState, whole
from delaylog.storage.columns import copy_rows, every, guests_per_hour, per_hour, some, take_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import (
    HOUR_MS,
    NEVER_MS,
    STATE_ENTRY,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.payloads import MoveDecision
from delaylog.storage.messages.rows import PlacedRows

MOVED_BYTES_MAX: Final = 16 << 20
"""Bytes of messages that a slice of work moves: each is copied, once for each group."""


@whole
def apply_move(
    state: EngineState,
    decision: MoveDecision,
    leader_time_ms: int,
    end: int,
    old: RowArray | None = None,
) -> Int64Array:
    """Copy rows to new ones; returns the new refs. `old` = the old rows, if already read."""
    state.before_change(decision.topic)
    refs = decision.refs
    old = state.hours.rows(refs) if old is None else old
    if not every(old["topic"]):
        # A tombstone has no origin and no body: the message would be lost for good.
        path = f"{state.folder}/hours"
        raise CorruptionError("rows of moved messages are missing", path=path, position=end)
    data = state.hours.records(refs, old)
    rows = copy_rows(old)
    size = rows["size"].astype(np.int64)
    ends = np.cumsum(size)
    rows["offset"] = ends - size
    rows["deliver_at"] = decision.deliver_at_ms
    rows["expires_at"] = decision.expires_at_ms
    rows["priority"] = decision.priority
    rows["epoch_tag"] = decision.tag
    rows["group"] = decision.group
    hour = np.maximum(decision.deliver_at_ms // HOUR_MS, decision.hour_floor)
    order = np.argsort(hour, kind="stable")
    rows, hour = take_rows(rows, order), hour[order]
    cuts = np.flatnonzero(np.diff(hour)) + 1
    starts = [0, *cuts.tolist(), len(rows)]
    placed = PlacedRows(rows, data, hour[starts[:-1]].tolist(), starts, order, end - 1)
    new_refs = state.hours.number(placed, end)
    origins = rows["origin"].astype(np.int64)

    moved = np.zeros(len(refs), STATE_ENTRY)
    moved["state"] = MessageState.MOVED
    moved["cause"] = decision.cause
    moved["time"] = leader_time_ms
    moved["forward"] = new_refs
    old_refs = refs[order]
    state.hours.put_states(old_refs, moved, decision.group)
    fresh = np.zeros(len(refs), STATE_ENTRY)
    fresh["attempts"] = decision.attempts[order]
    fresh["cause"] = decision.cause
    fresh["time"] = end - 1
    group = state.group(decision.topic, decision.group)
    state.hours.put_states(new_refs, fresh, decision.group)
    # Where the origin is not the old row, the message has moved before. The origin's whole entry is
    # written anew: a replay must not read states, since a crash may have torn them.
    away = origins != old_refs
    if some(away):
        state.hours.put_states(origins[away], take_rows(moved, away), decision.group)
        state.hours.touch(origins[away], end)
    new_guests = guests_per_hour(new_refs, origins)
    if group is not None:
        group.hours.add(per_hour(new_refs), +1)
        group.guests.add(new_guests, +1)
    if decision.from_ended:
        if group is not None:
            group.counts.add("dead", -len(refs))
            group.counts.add("living", len(refs))
        state.hours.touch(old_refs, end)
        # Meanwhile another message may have had the same id.
        state.ids.put_rows(rows, origins)
    else:
        by_hour, guests = per_hour(old_refs), guests_per_hour(old_refs, origins)
        if group is not None:
            group.hours.add(by_hour, -1)
            group.guests.add(guests, -1)
        state.hours.counts.count_living(by_hour, -1, end)
        state.hours.counts.count_guests(guests, -1, end)
    state.hours.counts.count_guests(new_guests, +1, end)
    topic = state.by_number.get(decision.topic)
    if topic is not None:
        if int(decision.expires_at_ms.min()) < NEVER_MS:
            state.marks.timed.add(decision.topic)
        topic.last_hour = max((topic.last_hour, *placed.hours))
        if not topic.prioritised and some(rows["priority"]):
            topic.prioritised = True
            topic.follow_settings()
    if decision.cause in RETURNS:
        attempts, cause, reason = decision.attempts, decision.cause, decision.reason
        place = (decision.topic, decision.group)
        failed = Failed(*place, refs, attempts, cause, False, leader_time_ms, reason)
        note_failures(state, failed, decision.leases)
    keyed = leave_leases(state, (decision.topic, group), refs, decision.leases, leader_time_ms)
    if group is not None and group.made_gate is not None and group.gate.in_use:
        if decision.cause in RETURNS:
            for each in keyed:
                group.gate.retry(each.keys, each.origins)
        else:
            # A client rescheduled it: messages with its key do not wait for the new time.
            free_keys(state, state.by_number[decision.topic], group, (), origins, living=True)
    expose(state, placed, new_refs, end)
    return new_refs
