"""Frames that a trace looks at, decoded, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgpack

from delaylog.broker.engine.late.evidence import Decision
from delaylog.broker.engine.model import empty_refs
from delaylog.storage.layout import EPOCH_NODE_BITS, FrameHeader, FrameKind, Int64Array
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.payloads import (
    LeaseDecision,
    MoveDecision,
    SendDecision,
    SettleDecision,
    unpack,
)
from delaylog.storage.messages.batch import Block

SEND_BYTES_MAX: Final = 1 << 20
"""A larger SEND frame is not read for the messages that its messages wait for."""
_REFS_A_SLICE: Final = 512
_DECODERS: Final[dict[FrameKind, Callable[[Block], Decision]]] = {
    FrameKind.LEASE: LeaseDecision.decode,
    FrameKind.SETTLE: SettleDecision.decode,
    FrameKind.MOVE: MoveDecision.decode,
}
KINDS: Final = frozenset((*_DECODERS, FrameKind.FLOOR))


class Purge(NamedTuple):
    """A purge of a group."""

    force: bool
    """Also of messages under lease."""


Taken: TypeAlias = tuple[FrameHeader, Decision | SendDecision | Purge]


def decoded(frame: Frame, place: tuple[int, int]) -> Decision | SendDecision | Purge | None:
    """What a frame says of a group; None if it is of another one."""
    kind, payload = frame.header.kind, frame.payload
    if kind == FrameKind.SEND:
        decided = SendDecision.decode(unpack(payload)[0])
        return None if decided.successors is None else decided
    if kind == FrameKind.FLOOR:
        members = msgpack.unpackb(payload)
        mine = (members["topic"], members["group"]) == place
        return Purge(force=members["force"]) if mine else None
    decision = _DECODERS[FrameKind(kind)](payload)
    return decision if (decision.topic, decision.group) == place else None


def refs_of(decision: Decision | SendDecision | Purge) -> Int64Array:
    """The rows that a frame leases, settles or moves."""
    return empty_refs() if isinstance(decision, Purge | SendDecision) else decision.refs


def parts_of(frames: Sequence[Taken]) -> Iterator[Sequence[Taken]]:
    """Frames in parts for a slice each. One that tells of a predecessor ends its part."""
    part: list[Taken] = []
    count = 0
    for taken in frames:
        part.append(taken)
        count += len(refs_of(taken[1])) + 1
        if count >= _REFS_A_SLICE or isinstance(taken[1], SendDecision):
            yield part
            part, count = [], 0
    if part:
        yield part


def consumer_of(lease: LeaseDecision, number: int) -> dict[str, str]:
    """The name and the address of the consumer of a lease, as far as they are known."""
    at = number - lease.lease
    texts = (("consumer", lease.consumers), ("address", lease.addresses))
    return {name: known[at] for name, known in texts if at < len(known) and known[at]}


def reason_of(frame: SettleDecision | MoveDecision) -> dict[str, str]:
    """Why a consumer failed, if it said so."""
    return {"reason": frame.reason} if frame.reason else {}


def who_appended(header: FrameHeader) -> dict[str, int]:
    """The epoch and the node under which a frame was appended."""
    node = header.epoch & ((1 << EPOCH_NODE_BITS) - 1)
    return {"epoch": header.epoch >> EPOCH_NODE_BITS, "node": node}
