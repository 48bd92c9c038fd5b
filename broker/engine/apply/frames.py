"""Frames: each is applied by the function for its kind, when the log is read and after an append.

A leader calls the same functions right after it appended the frame. They read no clock, no
configuration and no request. Frames carry absolute values, and counts follow from the frame alone,
so a replay from a checkpoint gives the same state. `replay` reads all of the log at a start,
`follow` what is committed on a follower; both flush tails and states when these take too much
memory.

A CLOCK frame records a step of the clock. Ahead: due messages are released as usual. Leases must
not expire early, producers must not be forgotten, and topics in use must not count as idle, so
their times move along. Back (after an operator confirmed it): messages keep their absolute due
times, and none may be handed out before its due time by the new clock. The wheel and the ready
queues contain only hints, so they are built anew as at a start. The hour floor goes back too, or a
new message would be stored in an hour that is opened only when the old time is reached again. A new
epoch begins, so that the refs of rows in a removed hour that is created again differ from the old
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgpack

from delaylog.broker.engine.apply.lease_frames import apply_claim, apply_lease, apply_settle
from delaylog.broker.engine.apply.move_frames import apply_move
from delaylog.broker.engine.apply.send_frames import (
    Logged,
    apply_publish,
    apply_send,
    apply_transaction,
    parts_needed,
)
from delaylog.broker.engine.apply.topic_frames import (
    apply_group,
    apply_purge,
    apply_target,
    apply_topic,
)
from delaylog.broker.engine.hold import apply_held
from delaylog.broker.engine.keyspace.keyspace_part import apply_effects
from delaylog.broker.engine.state import EngineState, whole
from delaylog.broker.engine.upkeep.archive import apply_archive
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.storage.log.frames import Frame, Tick
from delaylog.storage.log.log_reader import frames_in
from delaylog.storage.log.payloads import (
    LeaseDecision,
    MoveDecision,
    PublishDecision,
    SendDecision,
    SettleDecision,
    frames_of,
    unpack,
)
from delaylog.storage.messages.batch import decode_send
from delaylog.storage.work import Work
from delaylog.wheel import TimingWheel


def apply_frame(state: EngineState, frame: Frame) -> None:
    """Replay one frame."""
    header, payload = frame.header, frame.payload
    kind = FrameKind(header.kind)
    if kind is FrameKind.SEND:
        head, wire = unpack(payload)
        batch = decode_send(wire, rows_max=2**31)
        logged = Logged(header.position, frame.end, header.leader_time_ms)
        apply_send(state, batch, SendDecision.decode(head), logged)
    elif kind is FrameKind.LEASE:
        apply_lease(state, LeaseDecision.decode(payload), frame.end)
    elif kind is FrameKind.SETTLE:
        apply_settle(state, SettleDecision.decode(payload), frame.end, header.leader_time_ms)
    elif kind is FrameKind.MOVE:
        apply_move(state, MoveDecision.decode(payload), header.leader_time_ms, frame.end)
    elif kind is FrameKind.TOPIC:
        at_ms = header.leader_time_ms
        apply_topic(state, msgpack.unpackb(payload), header.position, frame.end, at_ms)
    elif kind is FrameKind.GROUP:
        apply_group(state, msgpack.unpackb(payload), header.position, frame.end)
    elif kind is FrameKind.FLOOR:
        apply_purge(state, msgpack.unpackb(payload), header.position, frame.end)
    elif kind is FrameKind.HOUR_FLOOR:
        apply_hour_floor(state, msgpack.unpackb(payload), header.leader_time_ms)
    elif kind is FrameKind.EPOCH_BEGIN:
        state.begin_epoch(header.epoch, header.position, bytes(payload))
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
        apply_effects(state.keyspace, effects)
        state.keyspace_base.note(len(payload))
    elif kind is FrameKind.CLAIM:
        apply_claim(state, msgpack.unpackb(payload), frame.end)
    elif kind is FrameKind.ARCHIVE:
        apply_archive(state, msgpack.unpackb(payload))
    elif kind is FrameKind.LEVEL:
        state.apply_level(payload)
    elif kind is FrameKind.ACCESS:
        state.access.apply(msgpack.unpackb(payload, strict_map_key=False))
    elif kind is FrameKind.SCHEDULE:
        state.schedules.apply(msgpack.unpackb(payload), header.position)
    elif kind is FrameKind.MULTI:
        for inner in frames_of(frame):
            apply_frame(state, inner)
    elif kind is FrameKind.TARGET:
        apply_target(state, msgpack.unpackb(payload), header.leader_time_ms)
    elif kind is FrameKind.HELD:
        apply_held(state, msgpack.unpackb(payload), frame.end, header.leader_time_ms)
    state.tick = Tick(header.tick_second, header.tick_local_index, header.tick_position)
    state.position, state.leader_time_ms = frame.end, header.leader_time_ms


@whole
def apply_hour_floor(state: EngineState, members: dict[str, int], leader_time_ms: int) -> None:
    """Raise the hour floor: no new row is stored below it. Forget idle producers."""
    state.hour_floor = max(state.hour_floor, members["floor"])
    state.producers.expire(leader_time_ms)


@whole
def apply_clock(state: EngineState, members: dict[str, int], leader_time_ms: int) -> None:
    """The clock jumped. Leases, claims and transactions keep their remaining time; after a step
    back, hours that had been removed may be created again.
    """
    state.leases.shift(members["step_ms"])
    state.claims.shift(members["step_ms"])
    state.transactions.shift(members["step_ms"])
    state.hour_floor_top = max(state.hour_floor_top, state.hour_floor)
    state.hour_floor = members["floor"]
    # Hours that are created again will have rows that no archive has.
    state.archive_released = min(state.archive_released, state.hour_floor)
    if members["step_ms"] < 0:
        state.producers.set_back(leader_time_ms)
    else:
        state.producers.jump_ahead(members["step_ms"])


# ------------------------------------------------------------------------------ reading the log

_REPLAY_FLUSH_FRAMES: Final = 64
_FOLLOW_BYTES: Final = 1 << 20


def replay(
    state: EngineState,
    start: int,
    durable_end: int,
    *,
    run: Callable[[Work], None],
    working: Callable[[str, int, int], None],
) -> int:
    """Recover the log and apply it from `start` on; returns the number of frames.

    The log must be intact up to `durable_end`. `run` runs work to its end at once.
    """
    pile, flusher = state.hours.pile, state.hours.flusher
    state.replaying = True
    frames = 0
    files_end = state.log.segments.files_end()
    for frame in state.log.recover(start, durable_end):
        apply_frame(state, frame)
        frames += 1
        if frames % _REPLAY_FLUSH_FRAMES == 0:
            working("replaying the log", frame.end - start, files_end - start)
            if pile.size_bytes > pile.bytes_max:
                run(flusher.flush(upto=frame.end))
            if flusher.dirty_state_bytes > flusher.state_bytes_max:
                run(flusher.flush_states())
    state.replaying = False
    state.position = state.log.end_position
    return frames


def follow(
    state: EngineState,
    upto: int,
    *,
    crowded: Callable[[], bool],
    flush: Callable[[], Work],
) -> Work:
    """Apply the log up to `upto`, a committed position at which a frame ends."""
    while state.position < upto:
        start = state.position
        data = state.log.read(start, min(_FOLLOW_BYTES, upto - start))
        for frame in frames_in(data, start):
            wanted = parts_needed(state, frame)
            if wanted:
                yield partial(state.staged.load, wanted)
            apply_frame(state, frame)
            yield None
        if crowded():
            yield from flush()


# --------------------------------------------------------------------------- steps of the clock


def jump_ahead(state: EngineState, jump_ms: int, now_ms: int) -> None:
    """The clock jumped ahead by `jump_ms`: leases, claims and transactions keep their time left.

    Producers do too, since a send whose answer was lost is repeated a moment later.
    """
    shifted = (state.leases, state.claims, state.producers, state.transactions)
    if any(len(one) for one in shifted):
        _append_clock(state, jump_ms, state.hour_floor, now_ms)
    for topic in state.by_number.values():
        topic.used_ms += jump_ms if topic.used_ms else 0
        for group in topic.groups.values():
            group.used_ms += jump_ms if group.used_ms else 0


def set_back(state: EngineState, step_ms: int, now_ms: int) -> None:
    """The clock was set back by `step_ms` (negative) to `now_ms`."""
    state.begin_own_epoch(now_ms)
    _append_clock(state, step_ms, min(state.hour_floor, now_ms // HOUR_MS - 1), now_ms)
    for topic in state.by_number.values():
        topic.used_ms = min(topic.used_ms, now_ms)
        for group in topic.groups.values():
            group.used_ms = min(group.used_ms, now_ms)
    # Token buckets start over or refill soon, while their recorded times may be hours away.
    state.marks.newly_ready.update(state.marks.rate_limited)
    state.forget_ready()
    state.wheel = TimingWheel(now_ms)


def _append_clock(state: EngineState, step_ms: int, floor: int, now_ms: int) -> None:
    members = {"step_ms": step_ms, "floor": floor}
    state.append(FrameKind.CLOCK, [msgpack.packb(members)], now_ms)
    apply_clock(state, members, now_ms)
