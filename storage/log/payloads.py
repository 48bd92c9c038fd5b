"""Payloads of frames: decisions as columns, each encode beside its decode.

Frames carry decisions, not requests: a decision sets rows and states to absolute values, so
applying it needs no clock, configuration or lease table. A payload is
`u32 head size | head (msgpack map) | tail bytes`; int64 columns travel as raw bytes.

MULTI contains several decisions, which are applied together or not at all:
`pack({"frames": [[kind, size], …]}, payloads)`, what the frames would have as their own payloads,
one after another. They share the position, the time and the tick of the MULTI frame. A MULTI frame
contains no MULTI, no PUBLISH and no KEYSPACE frame: those need work of their own.

TXN has a kind, the member `op` of its head:

    op       members                                                        tail
    begin    txn, id, ttl, expires (a repeat extends the time), by          -
    part     txn, producer, part, attempt, number, topic, rows, crc,        the client's bulk
             expires                                                        columns, untouched
    commit   txn, rows                                                      u32 places of the parts
                                                                            that won, in the order
                                                                            of publication
    abort    txn                                                            -
    expire   txn                                                            -
    forget   before                                                         -

`by` is the principal that begins it, absent if nobody had to authenticate. `txn` is a number that
is never used again. `expires` and `before` are leader times. The place of a part is its index in
the order of staging. PUBLISH has the same form without a tail: txn, `part` (position of the part's
frame), `first` and `stop` (its range of rows), `at` (leader time at which these rows count as
sent), `counts` (rows by result), and `send`, the members of a SEND frame's decision. `send` is
absent if the range is skipped, since its topic was dropped or purged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.contract.named_fields import NamedFields
from delaylog.storage.columns import alike, some
from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, FrameKind, Int64Array, StateArray
from delaylog.storage.log.frames import Frame
from delaylog.storage.messages.batch import Block, Column

# -------------------------------------------------------------------- SEND, LEASE, SETTLE, MOVE

_PACKER: Final = msgpack.Packer()
_HEAD_SIZE: Final = struct.Struct("<I")
_JOINED_MAX: Final = 1_024
"""A tail of up to this size is copied, which costs less than a buffer of its own."""


def pack(head: Mapping[str, Any], tail: Block = b"") -> list[Block]:
    """Buffers of a payload; a large tail is not copied."""
    packed = _PACKER.pack(head)
    size = _HEAD_SIZE.pack(len(packed))
    if isinstance(tail, bytes) and len(tail) <= _JOINED_MAX:
        return [size + packed + tail]
    return [size + packed, tail]


def unpack(payload: Block) -> tuple[dict[str, Any], memoryview]:
    """Head and tail of a payload whose checksum has been verified."""
    view = memoryview(payload)
    (size,) = _HEAD_SIZE.unpack_from(view)
    end = _HEAD_SIZE.size + size
    return msgpack.unpackb(view[_HEAD_SIZE.size : end], strict_map_key=False), view[end:]


def _pack_column(column: Column, dtype: str) -> int | bytes:
    return column if isinstance(column, int) else np.ascontiguousarray(column, dtype).tobytes()


def _unpack_column(value: int | bytes, dtype: str) -> Column:
    return value if isinstance(value, int) else np.frombuffer(value, dtype)


_MOVE: Final = NamedFields(
    topic="topic", group="group", tag="tag", floor="hour_floor", cause="cause"
)
_MOVE_COLUMNS: Final = ("refs", "deliver_at_ms", "expires_at_ms", "priority", "attempts")


@dataclass(slots=True)
class SendDecision:
    """The engine's decision about a batch; the client's bytes follow it in the frame.

    `accepted` lists the rows that become messages (None = all of them). `ttl_ms` and `max_retry`
    are defaults for absent columns. The due time of a row is max(requested time, leader time of the
    frame), and its hour is max(due hour, `hour_floor`).
    """

    topic: int
    tag: int
    hour_floor: int
    ttl_ms: int
    max_retry: int
    accepted: Int64Array | None = None
    producer: str | None = None
    sequence: int | None = None
    kept: tuple[Int64Array, Int64Array, Int64Array, Int64Array] | None = None
    """Rows that did not become messages: (row, ref answered, due answered, result code)."""
    successors: tuple[Int64Array, Int64Array, Int64Array] | None = None
    """Rows whose id belongs to a leased message: (row, origin of that message, group number)."""

    def encode(self, wire: Block) -> list[Block]:
        """The payload of a SEND frame."""
        return pack(self.head(), wire)

    def head(self) -> dict[str, Any]:
        """The decision as members of a map."""
        head: dict[str, Any] = {
            "topic": self.topic,
            "tag": self.tag,
            "floor": self.hour_floor,
            "ttl": self.ttl_ms,
            "retry": self.max_retry,
        }
        if self.accepted is not None:
            head["accepted"] = self.accepted.astype("<i8").tobytes()
        if self.producer is not None:
            head["producer"] = self.producer
            head["sequence"] = self.sequence
            if self.kept is not None:
                head["kept"] = np.stack(self.kept).astype("<i8").tobytes()
        if self.successors is not None:
            head["successors"] = np.stack(self.successors).astype("<i8").tobytes()
        return head

    @classmethod
    def decode(cls, head: Mapping[str, Any]) -> SendDecision:
        accepted = head.get("accepted")
        kept = head.get("kept")
        columns = None if kept is None else np.frombuffer(kept, "<i8").reshape(4, -1)
        lined_up = head.get("successors")
        others = None if lined_up is None else np.frombuffer(lined_up, "<i8").reshape(3, -1)
        return cls(
            topic=head["topic"],
            tag=head["tag"],
            hour_floor=head["floor"],
            ttl_ms=head["ttl"],
            max_retry=head["retry"],
            accepted=None if accepted is None else np.frombuffer(accepted, "<i8"),
            producer=head.get("producer"),
            sequence=head.get("sequence"),
            kept=None if columns is None else (columns[0], columns[1], columns[2], columns[3]),
            successors=None if others is None else (others[0], others[1], others[2]),
        )


@dataclass(slots=True)
class LeaseDecision:
    """Refs that were leased until a deadline in leader time, under one lease or several."""

    lease: int
    topic: int
    group: int
    deadline_ms: int
    refs: Int64Array
    attempts: Column
    claim: int = 0
    """Number of the claim that leased them; 0 = none."""
    counts: Sequence[int] = ()
    """Number of refs of each lease, if there are several; they are numbered from `lease` on. Empty
    for a single lease.
    """
    untried: Column = 0
    """1 for each ref whose attempt does not count before it begins."""
    consumers: Sequence[str] = ()
    """The consumer's name of each lease, "" = none; empty if no consumer has a name."""
    addresses: Sequence[str] = ()
    """Where each consumer called from, "" = not known; empty if no address is known."""
    late: Sequence[Sequence[Any]] = ()
    """Why messages of the group were late: [cause, from, until] of spans of time."""
    extends: bool = False
    """Whether the lease existed before."""

    @property
    def last_lease(self) -> int:
        """The number of the last lease."""
        return self.lease + max(len(self.counts) - 1, 0)

    @property
    def leases(self) -> Column:
        """The lease of each ref."""
        if not self.counts:
            return self.lease
        return np.repeat(np.arange(self.lease, self.last_lease + 1), self.counts)

    def apart(self) -> Iterator[tuple[LeaseDecision, slice]]:
        """Each lease as a separate decision, with its rows."""
        start, attempts, untried = 0, self.attempts, self.untried
        for at, count in enumerate(self.counts or [len(self.refs)]):
            rows = slice(start, start + count)
            start += count
            one = LeaseDecision(
                lease=self.lease + at,
                topic=self.topic,
                group=self.group,
                deadline_ms=self.deadline_ms,
                refs=self.refs[rows],
                attempts=attempts if isinstance(attempts, int) else attempts[rows],
                claim=self.claim,
                untried=untried if isinstance(untried, int) else untried[rows],
                consumers=self.consumers[at : at + 1],
                addresses=self.addresses[at : at + 1],
            )
            yield one, rows

    def encode(self) -> list[Block]:
        return lease_payload(
            self.lease,
            (self.topic, self.group),
            self.deadline_ms,
            self.refs.astype("<i8", copy=False).tobytes(),
            _pack_column(self.attempts, "<u2"),
            claim=self.claim,
            counts=self.counts,
            untried=_pack_column(self.untried, "u1"),
            consumers=self.consumers,
            addresses=self.addresses,
            late=self.late,
            extends=self.extends,
        )

    @classmethod
    def decode(cls, payload: Block) -> LeaseDecision:
        head, tail = unpack(payload)
        return cls(
            lease=head["lease"],
            topic=head["topic"],
            group=head["group"],
            deadline_ms=head["deadline"],
            refs=np.frombuffer(tail, "<i8"),
            attempts=_unpack_column(head["attempts"], "<u2"),
            claim=head.get("claim", 0),
            counts=head.get("counts", ()),
            untried=_unpack_column(head.get("untried", 0), "u1"),
            consumers=head.get("consumers", ()),
            addresses=head.get("addresses", ()),
            late=head.get("late", ()),
            extends=head.get("extends", False),
        )


def lease_payload(
    lease: int,
    place: tuple[int, int],
    deadline_ms: int,
    refs: bytes,
    attempts: int | bytes,
    *,
    claim: int = 0,
    counts: Sequence[int] = (),
    untried: int | bytes = 0,
    consumers: Sequence[str] = (),
    addresses: Sequence[str] = (),
    late: Sequence[Sequence[Any]] = (),
    extends: bool = False,
) -> list[Block]:
    """The payload of a LEASE frame, given its columns as bytes; see `LeaseDecision`."""
    topic, group = place
    head: dict[str, Any] = {
        "lease": lease,
        "topic": topic,
        "group": group,
        "deadline": deadline_ms,
        "attempts": attempts,
    }
    if claim:
        head["claim"] = claim
    if counts:
        head["counts"] = counts
    if untried:
        head["untried"] = untried
    if any(consumers):
        head["consumers"] = consumers
    if any(addresses):
        head["addresses"] = addresses
    if late:
        head["late"] = late
    if extends:
        head["extends"] = True
    return pack(head, refs)


@dataclass(slots=True)
class SettleDecision:
    """New states of rows: ack, nack at once, cancel, expiry, death.

    `entries` are whole state-column entries, one per ref or one for all. `leases` has the lease
    under which each row was, or one lease for all rows; 0, or None for all, means that it was not
    leased. So counts and the lease table are updated without reading states.
    """

    topic: int
    group: int
    refs: Int64Array
    entries: StateArray
    leases: Column | None
    origins: Int64Array | None = None
    """Origins, if they differ from the refs."""
    keep_until_ms: int = 0
    """Time until which ended rows stay readable."""
    was: int = 0
    """The ended state that all rows had before; 0 = they were living."""
    reason: str = ""
    """Why their consumer failed, in its words."""

    def encode(self) -> list[Block]:
        refs = self.refs.astype("<i8", copy=False).tobytes()
        leases: int | bytes | None = None
        if isinstance(self.leases, int):
            leases = self.leases
        elif self.leases is not None:
            if len(self.leases) and alike(self.leases):
                leases = int(self.leases[0])
            else:
                leases = self.leases.astype("<i8").tobytes()
        origins = b""
        if self.origins is not None and self.origins is not self.refs:
            if some(self.origins != self.refs):
                origins = self.origins.astype("<i8").tobytes()
        return settle_payload(
            (self.topic, self.group),
            refs,
            self.entries.tobytes(),
            leases,
            origins,
            keep_until_ms=self.keep_until_ms,
            was=self.was,
            reason=self.reason,
        )

    @classmethod
    def decode(cls, payload: Block) -> SettleDecision:
        head, tail = unpack(payload)
        n = head["n"]
        refs = np.frombuffer(tail[: 8 * n], "<i8")
        at = 8 * n
        leases: Column | None = None
        if "lease" in head:
            leases = head["lease"]
        elif head.get("leases"):
            leases = np.frombuffer(tail[at : at + 8 * n], "<i8")
            at += 8 * n
        origins: Int64Array = refs
        if head.get("origins"):
            origins = np.frombuffer(tail[at : at + 8 * n], "<i8")
            at += 8 * n
        entries = np.frombuffer(tail[at:], STATE_ENTRY)
        if head["same"]:
            entries = np.repeat(entries, n)
        return cls(
            head["topic"],
            head["group"],
            refs,
            entries,
            leases,
            origins,
            head["keep"],
            head.get("was", 0),
            head.get("reason", ""),
        )


def settle_payload(
    place: tuple[int, int],
    refs: bytes,
    entries: bytes,
    leases: int | bytes | None,
    origins: bytes,
    *,
    keep_until_ms: int,
    was: int = 0,
    reason: str = "",
) -> list[Block]:
    """The payload of a SETTLE frame, given its columns as bytes; see `SettleDecision`.

    `entries` has one entry for all rows, or one for each; `origins` is empty if they are the refs.
    """
    # Compared as bytes: numpy compares structured columns field by field.
    one, count = entries[:STATE_ENTRY_SIZE], len(entries) // STATE_ENTRY_SIZE
    same = count > 0 and (count == 1 or entries == one * count)
    topic, group = place
    head: dict[str, Any] = {"topic": topic, "group": group, "n": len(refs) // 8}
    several = b""
    if isinstance(leases, int):
        head["lease"] = leases
    elif leases is not None:
        head["leases"] = True
        several = leases
    head["same"] = same
    head["keep"] = keep_until_ms
    if was:
        head["was"] = was
    if reason:
        head["reason"] = reason
    if origins:
        head["origins"] = True
    return pack(head, refs + several + origins + (one if same else entries))


@dataclass(slots=True)
class MoveDecision:
    """Messages that continue in a new row: retry with delay, reschedule, replay of dead ones.

    The new row keeps body, origin and sent position; due time, expiry, priority and attempts come
    from the frame. `leases` is as in SettleDecision. `from_ended` = the messages were dead.
    """

    topic: int
    group: int
    tag: int
    hour_floor: int
    cause: int
    refs: Int64Array
    deliver_at_ms: Int64Array
    expires_at_ms: Int64Array
    priority: Int64Array
    attempts: Int64Array
    leases: Int64Array | None
    from_ended: bool = False
    reason: str = ""

    def encode(self) -> list[Block]:
        columns = [getattr(self, name) for name in _MOVE_COLUMNS]
        if self.leases is not None:
            columns.append(self.leases)
        head = _MOVE.pack(self)
        head |= {"n": len(self.refs), "leases": self.leases is not None, "ended": self.from_ended}
        if self.reason:
            head["reason"] = self.reason
        return pack(head, b"".join(c.astype("<i8", copy=False).tobytes() for c in columns))

    @classmethod
    def decode(cls, payload: Block) -> MoveDecision:
        head, tail = unpack(payload)
        n = head["n"]
        columns = np.frombuffer(tail, "<i8").reshape(-1, n)
        named = dict[str, Any](zip(_MOVE_COLUMNS, columns[: len(_MOVE_COLUMNS)], strict=True))
        return cls(
            **_MOVE.unpack(head),
            **named,
            leases=columns[-1] if head["leases"] else None,
            from_ended=head["ended"],
            reason=head.get("reason", ""),
        )


# ---------------------------------------------------------------------------------------- MULTI


def encode_multi(parts: Sequence[tuple[FrameKind, Sequence[Block]]]) -> list[Block]:
    """The payload of a MULTI frame of these kinds and payloads."""
    sizes = [[int(kind), sum(map(len, payload))] for kind, payload in parts]
    return [*pack({"frames": sizes}), *(block for _, payload in parts for block in payload)]


def frames_of(frame: Frame) -> Iterator[Frame]:
    """The frames in a MULTI frame. Each has the header of the whole, but for its kind."""
    head, tail = unpack(frame.payload)
    start = 0
    for kind, size in head["frames"]:
        yield Frame(frame.header._replace(kind=kind), tail[start : start + size])
        start += size


# ------------------------------------------------------------------------------ TXN and PUBLISH

PART: Final = np.dtype(
    [
        ("position", "<u8"),
        ("attempt", "<u8"),
        ("producer", "<u4"),
        ("part", "<u4"),
        ("number", "<u4"),
        ("topic", "<u4"),
        ("rows", "<u4"),
        ("bytes", "<u4"),
        ("crc", "<u4"),
        ("flags", "<u4"),
    ]
)
"""The entry of a staged part, in memory and in checkpoints. `position` is that of its frame,
`producer` an index in the transaction's list of names, and `flags` is 0."""
PART_SIZE: Final = 48
assert PART.itemsize == PART_SIZE

PartArray = npt.NDArray[np.void]
PartIndexes = npt.NDArray[np.uint32]


class TxnOp(StrEnum):
    """The kinds of TXN frames."""

    BEGIN = "begin"
    PART = "part"
    COMMIT = "commit"
    ABORT = "abort"
    EXPIRE = "expire"
    FORGET = "forget"


_STAGED: Final = NamedFields(
    txn="transaction",
    producer="producer",
    part="part",
    attempt="attempt",
    number="number",
    topic="topic",
    rows="rows",
    crc="crc",
    expires="expires_ms",
)
_PUBLISH: Final = NamedFields(
    txn="transaction", part="part", first="first", stop="stop", at="at_ms"
)


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The head of a staged part; the client's columns follow it in the frame."""

    transaction: int
    producer: str
    part: int
    attempt: int
    number: int
    topic: int
    rows: int
    crc: int
    expires_ms: int

    def encode(self, wire: Block) -> list[Block]:
        """The payload; the client's bytes are not copied."""
        return pack({"op": TxnOp.PART} | _STAGED.pack(self), wire)

    @classmethod
    def decode(cls, head: Mapping[str, Any]) -> StagedPart:
        """Decode the head of a frame."""
        return cls(**_STAGED.unpack(head))


def wire_of(payload: Block) -> memoryview:
    """The client's columns in the payload of a part's frame."""
    return unpack(payload)[1]


def checksum(wire: Block) -> int:
    """The checksum of a part's columns, by which a repeat is recognised."""
    return int(crc32c(wire))


@dataclass(frozen=True, slots=True)
class PublishDecision:
    """The decision to turn a range of a committed part into rows, or to skip it."""

    transaction: int
    part: int
    """Position of the part's frame."""
    first: int
    stop: int
    at_ms: int
    """Leader time at which the rows count as sent; rows with an earlier due time are due then."""
    counts: tuple[int, ...]
    """Rows of this range by result, in the order of `RESULTS`."""
    send: SendDecision | None
    """None = the range is skipped: a drop or a purge of the topic has ended its messages."""

    def encode(self) -> list[Block]:
        """The payload."""
        head = _PUBLISH.pack(self) | {"counts": self.counts}
        return pack(head if self.send is None else head | {"send": self.send.head()})

    @classmethod
    def decode(cls, payload: Block) -> PublishDecision:
        """Decode the payload of a frame."""
        head, _ = unpack(payload)
        send = None if head.get("send") is None else SendDecision.decode(head["send"])
        return cls(**_PUBLISH.unpack(head), counts=tuple(head["counts"]), send=send)


RESULTS: Final = ("created", "kept", "replaced", "rejected", "ended")
"""Results of committed rows: those of a send, and `ended` by a drop or a purge of the topic."""

ENDED: Final = struct.Struct("<BBHI10Qqq")
ENDED_SIZE: Final = 104
assert ENDED.size == ENDED_SIZE
_STATES: Final = ("", "committed", "aborted", "expired")


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """The record of a transaction that has ended; 104 bytes in a checkpoint.

    0  state u8 (1 committed, 2 aborted, 3 expired) | 1 zero u8, u16 | 4 parts u32 | 8 rows u64
    16 bytes u64 | 24 discarded rows u64 | 32 rows by result 5 x u64 | 72 zero 2 x u64
    88 decided i64 | 96 kept from i64
    """

    state: str
    parts: int
    rows: int
    """Number of committed rows; if it was not committed, of staged rows."""
    size: int
    """Bytes of the parts with these rows."""
    discarded_rows: int
    """Rows that were staged and not committed."""
    counts: tuple[int, ...]
    decided_ms: int
    kept_from_ms: int
    """The time when it ended, minus the steps that the clock had made by then."""

    def encode(self) -> bytes:
        """The bytes of the record."""
        return ENDED.pack(
            _STATES.index(self.state),
            0,
            0,
            self.parts,
            self.rows,
            self.size,
            self.discarded_rows,
            *self.counts,
            0,
            0,
            self.decided_ms,
            self.kept_from_ms,
        )

    @classmethod
    def decode(cls, raw: bytes) -> EndedTransaction:
        """Decode the bytes of the record."""
        state, _, _, parts, rows, size, discarded, *rest = ENDED.unpack(raw)
        counts, (decided_ms, kept_from_ms) = tuple(rest[:5]), rest[-2:]
        return cls(_STATES[state], parts, rows, size, discarded, counts, decided_ms, kept_from_ms)
