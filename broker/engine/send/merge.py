"""Merge: what a repeated id does to a living message, and to a batch that contains it twice.

A message is living if it lives in any group. In each group where it waits or is ready it is kept or
replaced. In a group where it is under lease it is kept, or the new message becomes its successor: a
successor is handed out after the leased message has ended, so that a change made during processing
is never lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.lease_frames import apply_settle
from delaylog.broker.engine.deliver.expiry import end_expired, find_living
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import some
from delaylog.storage.layout import (
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
)
from delaylog.storage.log.payloads import SettleDecision
from delaylog.storage.messages.batch import MessageBatch
from delaylog.storage.messages.rows import id_hashes

CREATED: Final = 0
KEPT: Final = 1
REPLACED: Final = 2
REJECTED: Final = 3
_LEASED: Final = int(MessageState.LEASED)


@dataclass(slots=True)
class Merge:
    """The result of merging the ids of a batch; rows are row numbers of the batch."""

    accepted: Int64Array | None = None
    """Rows that become messages; None = all."""
    kept: tuple[Int64Array, Int64Array, Int64Array, Int64Array] | None = None
    replaced_rows: Int64Array | None = None
    replaced: list[tuple[Group, Int64Array]] = field(default_factory=list)
    """Refs of the messages to end, by group."""
    successors: tuple[Int64Array, Int64Array, Int64Array] | None = None


@dataclass(slots=True)
class _Living:
    """Living messages with the ids of the batch, in any group; one slot for each row with an id."""

    origins: Int64Array
    due: Int64Array
    free: npt.NDArray[np.bool_]
    """Waits or is ready in some group."""
    leased: npt.NDArray[np.bool_]
    """Under lease in some group."""
    free_refs: list[tuple[Group, Int64Array, Int64Array]]
    """(group, slots, refs) of those that wait or are ready."""
    leases: list[tuple[Group, Int64Array]]
    """(group, slots) of those under lease."""


class _Ids(NamedTuple):
    """The ids of a batch; one slot for each row with an id."""

    hashes: npt.NDArray[np.uint64]
    origins: Int64Array
    """Their entries in the id index; 0 = none."""
    sizes: Int64Array


def merge_ids(
    state: EngineState, topic: Topic, batch: MessageBatch, mode: str, now_ms: int
) -> Merge:
    """Match client-chosen ids against living messages and each other."""
    if batch.id.empty:
        return Merge()
    hashes = id_hashes(batch, state.id_hash)
    rows = np.flatnonzero(hashes)
    if len(rows) < batch.n:
        hashes = hashes[rows]
    origins = state.ids.get_column(topic.number, hashes)
    repeated = _has_repeats(hashes)
    if not (repeated or some(origins) or expecting_successors(topic)):
        # No message has any of these ids.
        return Merge()
    ids = _Ids(hashes, origins, batch.id.sizes(batch.n)[rows])
    living = _find(state, topic, batch, ids, now_ms)
    first, last = _repeats(batch, rows, hashes) if repeated else (rows, rows)
    succeed = topic.settings.succeeds_leased(mode)
    merge = Merge()
    counts = living.free | living.leased
    if mode == "replace":
        # The last row with an id counts; it replaces the living message.
        once = last == rows
        answers, due = -(last + 1), np.zeros(len(rows), np.int64)
        codes = np.full(len(rows), REPLACED)
        out = ~once
        if not succeed:
            stays = once & living.leased
            answers[stays], due[stays] = living.origins[stays], living.due[stays]
            codes[stays] = KEPT
            out |= stays
        replaced = ~out & living.free
        if some(replaced):
            merge.replaced_rows = rows[replaced]
            for group, slots, refs in living.free_refs:
                mine = replaced[slots]
                if some(mine):
                    merge.replaced.append((group, refs[mine]))
    else:
        # The living message counts, otherwise the first row with the id.
        answers, due = -(first + 1), np.zeros(len(rows), np.int64)
        stays = living.free if succeed else counts
        answers[stays], due[stays] = living.origins[stays], living.due[stays]
        codes = np.full(len(rows), KEPT if mode == "keep" else REJECTED)
        out = (first != rows) | stays
    if succeed:
        merge.successors = _successors(topic, rows, hashes, ~out, living)
    if some(out):
        merge.kept = rows[out], answers[out], due[out], codes[out].astype(np.int64)
        mask = np.ones(batch.n, np.bool_)
        mask[rows[out]] = False
        merge.accepted = np.flatnonzero(mask)
    return merge


def _find(
    state: EngineState,
    topic: Topic,
    batch: MessageBatch,
    ids: _Ids,
    now_ms: int,
) -> _Living:
    n = len(ids.sizes)
    out = _Living(
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.bool_),
        [],
        [],
    )
    for group in topic.groups.values():
        at, found = find_living(
            state, topic, ids.origins, batch.id.block, ids.sizes, group=group, now_ms=now_ms
        )
        if len(at):
            _note(out, group, at, found)
    left = np.flatnonzero(~(out.free | out.leased))
    for group in topic.groups.values() if len(left) else ():
        if group.made_gate is not None and group.gate.expecting:
            # The index names the newest message with an id. If that was a successor which ended,
            # its predecessor may still live.
            heirs = [group.gate.predecessor(int(hash_)) or 0 for hash_ in ids.hashes[left]]
            found = find_origins(state, np.array(heirs, np.int64), topic, now_ms, group)
            end_expired(state, topic, found, now_ms)
            alive = np.flatnonzero(found.known & (found.states < STATE_ENDED_FIRST))
            if len(alive):
                _note(out, group, left[alive], found.take(alive))
    return out


def expecting_successors(topic: Topic) -> bool:
    """Whether successors of leased ids wait in some group."""
    return any(
        group.made_gate is not None and group.gate.expecting for group in topic.groups.values()
    )


def _note(out: _Living, group: Group, at: Int64Array, found: FoundMessages) -> None:
    """Note that these living messages of a group have the ids at these slots."""
    out.origins[at], out.due[at] = found.origins, found.rows["deliver_at"]
    leased = found.states == _LEASED
    out.leased[at] |= leased
    out.free[at] |= ~leased
    if some(leased):
        out.leases.append((group, at[leased]))
    if some(~leased):
        out.free_refs.append((group, at[~leased], found.refs[~leased]))


def _successors(
    topic: Topic,
    rows: Int64Array,
    hashes: npt.NDArray[np.uint64],
    made: npt.NDArray[np.bool_],
    living: _Living,
) -> tuple[Int64Array, Int64Array, Int64Array] | None:
    """(rows, origins they wait for, groups) of new messages whose ids leased messages have."""
    found: dict[tuple[int, int], int] = {}
    for group, slots in living.leases:
        for slot in slots[made[slots]].tolist():
            found[slot, group.number] = int(living.origins[slot])
    for group in topic.groups.values():
        if group.made_gate is not None and group.gate.expecting:
            # A successor of the leased message exists already, or has ended meanwhile.
            for slot in np.flatnonzero(made).tolist():
                predecessor = group.gate.predecessor(int(hashes[slot]))
                if predecessor is not None:
                    found.setdefault((slot, group.number), predecessor)
    if not found:
        return None
    slots = np.array([slot for slot, _ in found], np.int64)
    numbers = np.array([number for _, number in found], np.int64)
    return rows[slots], np.array(list(found.values()), np.int64), numbers


def end_replaced(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, now_ms: int
) -> None:
    """End messages that were replaced."""
    entries = np.zeros(len(refs), STATE_ENTRY)
    entries["state"] = MessageState.CANCELLED
    entries["cause"] = Cause.REPLACED
    entries["time"] = now_ms
    rows = state.hours.rows(refs)
    origins = rows["origin"].astype(np.int64)
    group.ready.left(state.count_released(rows))
    keep_until_ms = now_ms + topic.settings.ended_keep_ms
    decision = SettleDecision(
        topic.number, group.number, refs, entries, None, origins, keep_until_ms
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end, now_ms)


def _has_repeats(hashes: npt.NDArray[np.uint64]) -> bool:
    if len(hashes) == 1:
        return False
    ranked = np.sort(hashes)
    return some(ranked[1:] == ranked[:-1])


def _repeats(
    batch: MessageBatch, rows: Int64Array, hashes: npt.NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """The first and the last row with the same id, for each row that has an id."""
    first, last = rows.copy(), rows.copy()
    # Rows with equal hashes are compared by their ids, which may differ.
    _, which, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    again = np.flatnonzero(counts[which] > 1).tolist()
    values = batch.id.values(batch.n)
    texts = [values[row] for row in rows[again].tolist()]
    for out, order in ((first, range(len(again))), (last, range(len(again) - 1, -1, -1))):
        seen: dict[bytes, int] = {}
        for k in order:
            out[again[k]] = seen.setdefault(texts[k], int(rows[again[k]]))
    return first, last
