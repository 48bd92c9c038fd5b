"""Apply a frame that was read from the log, by the function for its kind.

A leader calls the same functions right after it appended the frame. They read no clock, no
configuration and no request. Frames carry absolute values, and counts follow from the frame alone,
so a replay from a checkpoint gives the same state.
"""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.apply.claim_frames import apply_claim
from delaylog.broker.engine.apply.move_frames import apply_move
from delaylog.broker.engine.apply.send_frames import Logged, apply_publish, apply_send
from delaylog.broker.engine.apply.state_frames import apply_lease, apply_settle
from delaylog.broker.engine.apply.topic_frames import (
    apply_group,
    apply_purge,
    apply_target,
    apply_topic,
)
from delaylog.broker.engine.apply.transaction_frames import apply_transaction
from delaylog.broker.engine.apply.whole_frames import whole
from delaylog.broker.engine.hold import apply_held
from delaylog.broker.engine.keyspace.keyspace_part import apply_effects
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep.archive import apply_archive
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Frame, Tick
from delaylog.storage.log.multi_frames import frames_of
from delaylog.storage.log.payloads import (
    LeaseDecision,
    MoveDecision,
    SendDecision,
    SettleDecision,
    unpack,
)
from delaylog.storage.log.transaction_frames import PublishDecision
from delaylog.storage.messages.batch import decode_send


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
