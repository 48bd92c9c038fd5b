"""Apply: what a frame does to rows, states, counts and tables.

One function per kind, used by the live path right after the frame was appended and by replay.
Nothing here reads a clock, a configuration or a request; values are absolute, counts follow from
the frame alone, so replaying from a checkpoint gives the same state.
"""

from __future__ import annotations

import itertools
from typing import Final

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.archiving import apply_archive
from delaylog.broker.engine.claim_frames import apply_claim
from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.leases import Keyed
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.producers import pack_answer
from delaylog.broker.engine.state import EngineState, Exposure
from delaylog.broker.engine.topics import apply_group, apply_purge, apply_topic
from delaylog.broker.engine.transactions.applying import apply_transaction, uncount_committed
from delaylog.broker.engine.waking import follow_settings, free_keys
from delaylog.storage.batch import Column, MessageBatch, decode_send
from delaylog.storage.columns import alike, distinct, every, guests_per_hour, per_hour, some
from delaylog.storage.frames import Frame, Tick
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SECONDS,
    HOUR_SHIFT,
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.own_backoff import column_has_own_backoffs
from delaylog.storage.payloads import (
    LeaseDecision,
    MoveDecision,
    SendDecision,
    SettleDecision,
    unpack,
)
from delaylog.storage.rows import PlacedRows, place_rows
from delaylog.storage.transaction_frames import PublishDecision
from delaylog.storage.whole_rows import copy_rows, take_rows
from delaylog.wheel import Entries

_WAITS_FOR_RETRY: Final = (Cause.NACK, Cause.LEASE_EXPIRED)


def apply_frame(state: EngineState, frame: Frame) -> None:
    """Replay one frame."""
    header, payload = frame.header, frame.payload
    kind = FrameKind(header.kind)
    if kind is FrameKind.SEND:
        head, wire = unpack(payload)
        batch = decode_send(wire, rows_max=2**31)
        apply_send(
            state,
            batch,
            SendDecision.decode(head),
            header.leader_time_ms,
            header.position,
            frame.end,
        )
    elif kind is FrameKind.LEASE:
        apply_lease(state, LeaseDecision.decode(payload), frame.end)
    elif kind is FrameKind.SETTLE:
        apply_settle(state, SettleDecision.decode(payload), frame.end)
    elif kind is FrameKind.MOVE:
        apply_move(state, MoveDecision.decode(payload), header.leader_time_ms, frame.end)
    elif kind is FrameKind.TOPIC:
        apply_topic(state, msgpack.unpackb(payload), header.position, frame.end)
    elif kind is FrameKind.GROUP:
        apply_group(state, msgpack.unpackb(payload), header.position, frame.end)
    elif kind is FrameKind.FLOOR:
        apply_purge(state, msgpack.unpackb(payload), header.position, frame.end)
    elif kind is FrameKind.HOUR_FLOOR:
        state.hour_floor = max(state.hour_floor, msgpack.unpackb(payload)["floor"])
    elif kind is FrameKind.EPOCH_BEGIN:
        state.begin_epoch(header.epoch, header.position)
    elif kind is FrameKind.CLOCK:
        apply_clock(state, msgpack.unpackb(payload), header.leader_time_ms)
    elif kind is FrameKind.JOB:
        state.jobs.apply(msgpack.unpackb(payload), header.position)
    elif kind is FrameKind.TXN:
        apply_transaction(state, payload, header.leader_time_ms, header.position)
    elif kind is FrameKind.PUBLISH:
        apply_publish(state, PublishDecision.decode(payload), header.position, frame.end)
    elif kind is FrameKind.KEYSPACE:
        path, position = f"{state.folder}/log", header.position
        effects = state.keyspace_pieces.take(payload, header.epoch, path=path, position=position)
        state.keyspace.apply(effects)
        state.keyspace_base.note(len(payload))
    elif kind is FrameKind.CLAIM:
        apply_claim(state, msgpack.unpackb(payload), frame.end)
    elif kind is FrameKind.ARCHIVE:
        apply_archive(state, msgpack.unpackb(payload))
    state.tick = Tick(header.tick_second, header.tick_local_index, header.tick_position)
    state.position, state.told_ms = frame.end, header.leader_time_ms


def apply_clock(state: EngineState, members: dict[str, int], leader_time_ms: int) -> None:
    """The broker's time jumped: what is left of each lease stays; hours may come to be again."""
    state.leases.shift(members["step_ms"])
    state.claims.shift(members["step_ms"])
    state.transactions.shift(members["step_ms"])
    state.hour_floor_top = max(state.hour_floor_top, state.hour_floor)
    state.hour_floor = members["floor"]
    # Hours that come to be again hold rows that no archive has.
    state.archive_released = min(state.archive_released, state.hour_floor)
    if members["step_ms"] < 0:
        state.producers.set_back(leader_time_ms)
    else:
        state.producers.jump_ahead(members["step_ms"])


def apply_send(
    state: EngineState,
    batch: MessageBatch,
    decision: SendDecision,
    leader_time_ms: int,
    position: int,
    end: int,
    sent_position: int | None = None,
) -> tuple[PlacedRows, Int64Array]:
    """Rows come to be; returns them with their refs (both ordered by hour).

    `sent_position` = where in the log they count as sent, if not by this frame.
    """
    placed = place_rows(batch, decision, leader_time_ms, position, sent_position)
    refs = state.hours.number(placed, end)
    rows = placed.rows
    if not batch.id.empty:
        state.ids.put_rows(rows, refs)
    if isinstance(decision.topic, int):
        topic = state.by_number.get(decision.topic)
        if topic is not None:
            _count_sent(state, topic, refs, placed, sent_position)
            topic.bytes_sent += int(rows["size"].sum())
            if not topic.prioritised and batch.priority is not None and some(rows["priority"]):
                topic.prioritised = True
                follow_settings(topic)
            if not topic.own_backoffs and not batch.headers.empty:
                topic.own_backoffs = some(column_has_own_backoffs(batch.headers, batch.n))
            if decision.successors is not None:
                _line_up(topic, placed, refs, decision.successors)
    else:
        for number in distinct(rows["topic"]).tolist():
            topic = state.by_number.get(number)
            if topic is not None:
                _count_sent(state, topic, refs[rows["topic"] == number])
    if decision.producer is not None and decision.sequence is not None:
        remember_answer(state, batch, decision, placed, refs, leader_time_ms, end)
    _expose(state, placed, refs, end)
    return placed, refs


def part_needed(state: EngineState, frame: Frame) -> int | None:
    """Where the part stands that a frame is about, unless it is at hand: applying would read it."""
    if frame.header.kind != FrameKind.PUBLISH:
        return None
    decision = PublishDecision.decode(frame.payload)
    if decision.send is None or state.staged.has(decision.part):
        return None
    return decision.part


def apply_publish(
    state: EngineState,
    decision: PublishDecision,
    position: int,
    end: int,
    batch: MessageBatch | None = None,
) -> None:
    """Rows of a committed part come to be, as those of a SEND do. `batch` = them, if at hand."""
    send = decision.send
    if send is not None:
        one = state.transactions.unpublished[decision.transaction]
        first, stop = decision.first, decision.stop
        if batch is None:
            batch = state.staged.rows(decision.part, first, stop, one.decided_ms)
        apply_send(state, batch, send, decision.at_ms, position, end, one.position)
        uncount_committed(state, one, int(one.parts["topic"][one.at]), stop - first)
    state.transactions.published(decision)
    if not state.transactions.unpublished:
        # Here, since a start and a follower read parts too.
        state.staged.drop()


def _line_up(
    topic: Topic,
    placed: PlacedRows,
    refs: Int64Array,
    successors: tuple[Int64Array, Int64Array, Int64Array],
) -> None:
    """Messages whose ids are under lease wait for the end of those."""
    order = np.arange(len(refs)) if placed.order is None else placed.order
    # `placed` is ordered by hour, the decision speaks of rows of the batch.
    place = {row: at for at, row in enumerate(order.tolist())}
    hashes = placed.rows["id_hash"]
    for row, predecessor, number in zip(*(c.tolist() for c in successors), strict=True):
        group = topic.groups.get(number)
        if group is not None:
            at = place[row]
            group.gate.wait_for(int(refs[at]), predecessor, int(hashes[at]))


def remember_answer(
    state: EngineState,
    batch: MessageBatch,
    decision: SendDecision,
    placed: PlacedRows,
    refs: Int64Array,
    leader_time_ms: int,
    end: int,
) -> None:
    """Keep what the first send of (producer, sequence) is answered."""
    assert decision.producer is not None
    assert decision.sequence is not None
    in_order, due = in_batch_order(placed, refs, batch.n)
    results: Int64Array | int = 0
    if decision.kept is not None:
        rows, kept_refs, kept_due, codes = decision.kept
        fill_kept(in_order, due, rows, kept_refs, kept_due)
        results = np.zeros(batch.n, np.int64)
        results[rows] = codes
    answer = pack_answer(in_order, due, results, end)
    state.producers.remember(decision.producer, decision.sequence, answer, leader_time_ms)


def fill_kept(
    refs: Int64Array, due: Int64Array, rows: Int64Array, kept: Int64Array, kept_due: Int64Array
) -> None:
    """Put answers of kept rows in; a negative ref -(r + 1) means "the same as row r"."""
    same = kept < 0
    refs[rows[~same]], due[rows[~same]] = kept[~same], kept_due[~same]
    source = -(kept[same] + 1)
    refs[rows[same]], due[rows[same]] = refs[source], due[source]


def in_batch_order(placed: PlacedRows, refs: Int64Array, n: int) -> tuple[Int64Array, Int64Array]:
    """(refs, due times) of accepted rows at their places in the batch; 0 elsewhere."""
    due = placed.rows["deliver_at"]
    if placed.order is None:
        return refs.copy(), due.astype(np.int64)
    out_refs, out_due = np.zeros(n, np.int64), np.zeros(n, np.int64)
    out_refs[placed.order] = refs
    out_due[placed.order] = due
    return out_refs, out_due


def _count_sent(
    state: EngineState,
    topic: Topic,
    refs: Int64Array,
    placed: PlacedRows | None = None,
    sent_position: int | None = None,
) -> None:
    """Count new rows in each group that sees them; `placed` says how they lie in hours."""
    topic.sent += len(refs)
    if placed is None:
        hours = per_hour(refs)
    else:
        lengths = (stop - start for start, stop in itertools.pairwise(placed.starts))
        hours = dict(zip(placed.hours, lengths, strict=True))
    topic.last_hour = max((topic.last_hour, *hours))
    others = -1
    for group in topic.groups.values():
        # What counts as sent in front of a floor has ended by rule before it came.
        if sent_position is None or sent_position >= group.floor:
            group.counts.living += len(refs)
            group.count_living(hours, +1)
            others += 1
    if others:
        state.hours.count_living(hours, others)


def _expose(state: EngineState, placed: PlacedRows, refs: Int64Array, end: int) -> None:
    """Line rows up for the wheel; replay leaves that to the opening of hours."""
    rows = placed.rows
    if state.replaying or len(rows) == 0:
        return
    due = rows["deliver_at"].astype(np.int64)
    seconds = due // 1000
    # A row below the hour floor stands in second 0 of a later hour than its due time.
    first_second = placed.hours[0] * HOUR_SECONDS
    if int(seconds.min()) < first_second:
        seconds = np.maximum(seconds, (refs >> HOUR_SHIFT) * HOUR_SECONDS)
    entries = Entries(due, refs, rows["topic"].astype(np.int64))
    state.exposures.append(Exposure(end, seconds, entries))


def apply_lease(
    state: EngineState, decision: LeaseDecision, end: int, rows: RowArray | None = None
) -> Int64Array:
    """Refs are leased (again, with a new deadline, when the lease is known); their origins.

    Where none has moved, those are the refs themselves, the same array.
    """
    refs = decision.refs
    # Attempts are most often alike, and with them all of the entries.
    entries = np.zeros(1 if isinstance(decision.attempts, int) else len(refs), STATE_ENTRY)
    entries["state"] = MessageState.LEASED
    entries["cause"] = Cause.RECEIVE
    entries["attempts"] = decision.attempts
    entries["lease"] = decision.lease
    entries["time"] = decision.deadline_ms
    state.hours.put_states(refs, entries, decision.group)
    state.hours.touch(refs, end)
    known = state.leases.get(decision.lease) is not None
    rows = state.hours.rows(refs) if rows is None else rows
    keys = rows["key_hash"].astype(np.uint64) if some(rows["key_hash"]) else None
    origins: Int64Array = rows["origin"].astype(np.int64)
    if every(origins == refs):
        origins = refs
    state.leases.add(decision, origins, keys)
    state.lease_number = max(state.lease_number, decision.lease & ((1 << 40) - 1))
    group = state.group(decision.topic, decision.group)
    if decision.claim and not known:
        state.claims.add(decision)
    if group is not None and not known:
        group.counts.leased += len(refs)
        group.counts.delivered += len(refs)
        if keys is not None:
            group.gate.hold(keys[keys != 0])
    return origins


def _leave_leases(
    state: EngineState,
    topic: int,
    group: Group | None,
    refs: Int64Array,
    leases: Column | None,
) -> list[Keyed]:
    """Take rows out of the leases they were under; those of them that have keys."""
    out: list[Keyed] = []
    if leases is None or len(refs) == 0:
        return out
    if group is not None and (topic, group.number) in state.full:
        # There is room again for somebody who was turned away.
        state.full.discard((topic, group.number))
        state.woken.add((topic, group.number))
    if not isinstance(leases, int) and alike(leases):
        leases = int(leases[0])
    for number in [leases] if isinstance(leases, int) else distinct(leases).tolist():
        if number:
            mine = refs if isinstance(leases, int) else refs[leases == number]
            keyed = state.leases.close(number, mine)
            if keyed is not None:
                out.append(keyed)
            if group is not None:
                group.counts.leased -= len(mine)
    return out


def apply_settle(state: EngineState, decision: SettleDecision, end: int) -> None:
    """Rows take the states the frame says."""
    refs, entries = decision.refs, decision.entries
    state.hours.put_states(refs, entries, decision.group)
    group = state.group(decision.topic, decision.group)
    if group is not None and decision.keep_until_ms:
        topic = state.by_number[decision.topic]
        topic.keep_until_ms = max(topic.keep_until_ms, decision.keep_until_ms)
    keyed = _leave_leases(state, decision.topic, group, refs, decision.leases)
    kinds = entries["state"]
    if decision.was:
        _change_ended(state, decision, group, end)
        return
    if alike(kinds):
        lengths = [(int(kinds[0]), len(refs))]
    else:
        found, counted = np.unique(kinds, return_counts=True)
        lengths = list(zip(found.tolist(), counted.tolist(), strict=True))
    ended = kinds >= STATE_ENDED_FIRST
    if every(ended):
        _end(state, decision, group, refs, end)
    else:
        state.hours.touch(refs, end)
        if some(ended):
            _end(state, decision, group, refs[ended], end, ended)
    if group is not None and group.gate.holding:
        if some(ended):
            origins = refs if decision.origins is None else decision.origins
            if not every(ended):
                origins = origins[ended]
            free_keys(state, state.by_number[decision.topic], group, keyed, origins)
        else:
            for each in keyed:
                group.gate.retry(each.keys, each.origins)
    for kind, n in lengths:
        if group is not None and kind >= STATE_ENDED_FIRST:
            group.counts.ended(kind, n)


def _change_ended(
    state: EngineState, decision: SettleDecision, group: Group | None, end: int
) -> None:
    """Rows that had ended take another ended state: nothing that lives is counted."""
    refs, kinds = decision.refs, decision.entries["state"]
    origins = refs if decision.origins is None else decision.origins
    for rows in (refs, origins):
        state.hours.keep_until(rows, end, decision.keep_until_ms)
    if group is not None:
        for kind, n in zip(*np.unique(kinds, return_counts=True), strict=True):
            group.counts.changed(decision.was, int(kind), int(n))


def _end(
    state: EngineState,
    decision: SettleDecision,
    group: Group | None,
    refs: Int64Array,
    end: int,
    mask: npt.NDArray[np.bool_] | None = None,
) -> None:
    if group is None:
        # Its rows stopped to live when it went.
        state.hours.touch(refs, end)
        return
    by_hour = per_hour(refs)
    state.hours.count_living(by_hour, -1, end, decision.keep_until_ms)
    group.count_living(by_hour, -1)
    origins = decision.origins
    if origins is not None:
        guests = guests_per_hour(refs, origins if mask is None else origins[mask])
        state.hours.count_guests(guests, -1, end, decision.keep_until_ms)
        group.count_guests(guests, -1)


def apply_move(
    state: EngineState,
    decision: MoveDecision,
    leader_time_ms: int,
    end: int,
    old: RowArray | None = None,
) -> Int64Array:
    """Rows live on in new rows; returns the new refs. `old` = the rows, if they are at hand."""
    refs = decision.refs
    old = state.hours.rows(refs) if old is None else old
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
    # An origin that is not the old row moved before. Its whole entry is stored anew, not changed:
    # a replay reads no state, since a crash may have torn what it is about to repair.
    away = origins != old_refs
    if some(away):
        state.hours.put_states(origins[away], take_rows(moved, away), decision.group)
        state.hours.touch(origins[away], end)
    new_guests = guests_per_hour(new_refs, origins)
    if group is not None:
        group.count_living(per_hour(new_refs), +1)
        group.count_guests(new_guests, +1)
    if decision.from_ended:
        if group is not None:
            group.counts.dead -= len(refs)
            group.counts.living += len(refs)
        state.hours.touch(old_refs, end)
        # A later message may have had its id meanwhile.
        state.ids.put_rows(rows, origins)
    else:
        by_hour, guests = per_hour(old_refs), guests_per_hour(old_refs, origins)
        if group is not None:
            group.count_living(by_hour, -1)
            group.count_guests(guests, -1)
        state.hours.count_living(by_hour, -1, end)
        state.hours.count_guests(guests, -1, end)
    state.hours.count_guests(new_guests, +1, end)
    topic = state.by_number.get(decision.topic)
    if topic is not None:
        topic.last_hour = max((topic.last_hour, *placed.hours))
        if not topic.prioritised and some(rows["priority"]):
            topic.prioritised = True
            follow_settings(topic)
    keyed = _leave_leases(state, decision.topic, group, refs, decision.leases)
    if group is not None and group.gate.holding:
        if decision.cause in _WAITS_FOR_RETRY:
            for each in keyed:
                group.gate.retry(each.keys, each.origins)
        else:
            # Somebody gave it another time: others with its key need not wait for that.
            free_keys(state, state.by_number[decision.topic], group, (), origins, living=True)
    _expose(state, placed, new_refs, end)
    return new_refs
