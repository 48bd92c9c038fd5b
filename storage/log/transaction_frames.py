"""Payloads of TXN and PUBLISH frames: what was staged, what was decided, what came to be.

TXN is `u32 head size | head (msgpack map) | tail`, with `op` saying what it is about:

    op       members                                                        tail
    begin    txn, id, ttl, expires (again: it gets more time)               -
    part     txn, producer, part, attempt, number, topic, rows, crc,        the client's bulk
             expires                                                        columns, untouched
    commit   txn, rows                                                      u32 places of the parts
                                                                            that won, in the order
                                                                            they are published in
    abort    txn                                                            -
    expire   txn                                                            -
    forget   before                                                         -

`txn` is a number that is never used again, `expires` and `before` are leader times, and a part's
place counts from zero in the order they were staged. PUBLISH is the same form without a tail: txn,
`part` (position of the part's frame), `first` and `stop` (rows of it), `at` (leader time that its
rows count as sent at), `counts` (rows by result) and, unless nobody is to see these rows, the
members of a SEND frame's decision.
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

from delaylog.storage.log.payloads import SendDecision, pack, unpack
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.named_fields import NamedFields

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
"""What is kept of a staged part, in memory and in checkpoints: where its frame stands, who staged
it (`producer` is a place in the transaction's list of names), and what it holds. `flags` is 0."""
PART_SIZE: Final = 48
assert PART.itemsize == PART_SIZE

PartArray = npt.NDArray[np.void]
PartIndexes = npt.NDArray[np.uint32]


class TxnOp(StrEnum):
    """What a TXN frame is about."""

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
    """One part as it is staged; the client's columns follow it in the frame."""

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
        """Of a frame's head."""
        return cls(**_STAGED.unpack(head))


def wire_of(payload: Block) -> memoryview:
    """The client's columns in the payload of a part's frame."""
    return unpack(payload)[1]


def checksum(wire: Block) -> int:
    """Of a part's columns: a repeat has the same."""
    return int(crc32c(wire))


@dataclass(frozen=True, slots=True)
class PublishDecision:
    """Rows of a committed part come to be."""

    transaction: int
    part: int
    """Position of the part's frame."""
    first: int
    stop: int
    at_ms: int
    """What is due earlier is due then: where a SEND has its frame's leader time."""
    counts: tuple[int, ...]
    """Rows of this range by what became of them: see `RESULTS`."""
    send: SendDecision | None
    """None = nobody is to see them: they have ended by rule."""

    def encode(self) -> list[Block]:
        """The payload."""
        head = _PUBLISH.pack(self) | {"counts": self.counts}
        return pack(head if self.send is None else head | {"send": self.send.head()})

    @classmethod
    def decode(cls, payload: Block) -> PublishDecision:
        """Of a frame's payload."""
        head, _ = unpack(payload)
        send = None if head.get("send") is None else SendDecision.decode(head["send"])
        return cls(**_PUBLISH.unpack(head), counts=tuple(head["counts"]), send=send)


RESULTS: Final = ("created", "kept", "replaced", "rejected", "ended")
"""What becomes of a committed row: as a send says it, or ended by rule before anybody saw it."""


ENDED: Final = struct.Struct("<BBHI10Qqq")
ENDED_SIZE: Final = 104
assert ENDED.size == ENDED_SIZE
_STATES: Final = ("", "committed", "aborted", "expired")


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """What is remembered of a transaction that has ended; 104 bytes in a checkpoint.

    0  state u8 (1 committed, 2 aborted, 3 expired) | 1 zero u8, u16 | 4 parts u32 | 8 rows u64
    16 bytes u64 | 24 discarded rows u64 | 32 rows by result 5 x u64 | 72 zero 2 x u64
    88 decided i64 | 96 kept from i64
    """

    state: str
    parts: int
    rows: int
    """Committed ones, else those that were staged."""
    size: int
    """Bytes of their parts."""
    discarded_rows: int
    """Staged and not committed."""
    counts: tuple[int, ...]
    decided_ms: int
    kept_from_ms: int
    """The time it ended without the steps that the clock has made by then."""

    def encode(self) -> bytes:
        """Its record."""
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
        """Of its record."""
        state, _, _, parts, rows, size, discarded, *rest = ENDED.unpack(raw)
        counts, (decided_ms, kept_from_ms) = tuple(rest[:5]), rest[-2:]
        return cls(_STATES[state], parts, rows, size, discarded, counts, decided_ms, kept_from_ms)
