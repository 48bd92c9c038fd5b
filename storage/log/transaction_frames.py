"""Payloads of the frames of transactions: TXN (stage, commit, abort …) and PUBLISH.

TXN is `u32 head size | head (msgpack map) | tail`; the member `op` of the head is its kind:

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
is never used again. `expires` and `before` are leader times. The place of a
part is its index in the order of staging. PUBLISH has the same form without a tail: txn, `part`
(position of the part's frame), `first` and `stop` (its range of rows), `at` (leader time at which
these rows count as sent), `counts` (rows by result), and `send`, the members of a SEND frame's
decision. `send` is absent if the range is skipped, since its topic was dropped or purged.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.contract.named_fields import NamedFields
from delaylog.storage.log.payloads import SendDecision, pack, unpack
from delaylog.storage.messages.batch import Block

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
