"""Idempotent producers: the stored answers to repeated (producer, sequence) pairs.

Each producer has a window of its last 64 sequences, in any order. The first answer to each is
packed: due times as offsets in the narrowest type that fits, refs as the first one of each hour,
since the rows of a batch are numbered hour by hour. A producer is forgotten ten minutes after its
last send, in leader time. At most a million producers and a fixed total of answers are kept; the
oldest go first. All of this follows from frames alone, so it is the same on every node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
import numpy as np
from crc32c import crc32c

from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.snapshot_list import SnapshotList, SnapshotNode
from delaylog.storage.checkpoint import PackedList
from delaylog.storage.columns import alike
from delaylog.storage.layout import HOUR_MS, HOUR_SHIFT, Int64Array
from delaylog.storage.messages.batch import MessageBatch
from delaylog.storage.work import Work

WINDOW: Final = 64
KEEP_MS: Final = 600_000
PRODUCERS_MAX: Final = 1_000_000
ANSWER_BYTES_MAX: Final = 256 << 20
"""Memory for the answers of all producers: 60 million rows with spread due times, or 590,000 sends
of one message. Every node must drop the same answers, so this is not configurable."""
ANSWER_COST: Final = 400
"""Bytes of one answer besides its packed columns: objects and entries of two dictionaries."""
PRODUCER_BYTES: Final = 480
ANSWER_BYTES: Final = 270
"""Memory of a producer, and of an answer besides its packed columns, as measured."""
DIGEST_SIZE: Final = 4
_DIGEST_HEAD: Final = msgpack.packb("digest") + bytes([0xC4, DIGEST_SIZE])
_DIGEST_AT: Final = 1 + len(_DIGEST_HEAD)
"""Offset of the digest, the first member of a packed answer."""
_PACKER: Final = msgpack.Packer()
_FORGOTTEN_A_SLICE: Final = 500
_OFFSET_TYPES: Final = ("<u1", "<u2", "<u4", "<i8")

Kept = tuple[Int64Array, Int64Array, Int64Array, Int64Array]
"""Rows of a batch that did not become messages: (row, ref answered, due answered, result)."""


@dataclass(slots=True)
class FirstAnswer:
    """The answer to the first send of a sequence, packed."""

    rows: int
    packed: bytes
    results: int | bytes
    position: int

    @property
    def cost(self) -> int:
        """Approximate bytes of memory."""
        results = self.results
        return ANSWER_COST + len(self.packed) + (0 if isinstance(results, int) else len(results))

    def was_of(self, batch: MessageBatch) -> bool:
        """Whether the batch has the messages of the first send."""
        return self.packed[_DIGEST_AT : _DIGEST_AT + DIGEST_SIZE] == digest_of(batch)

    def unpack(self) -> tuple[Int64Array, Int64Array, Int64Array | int]:
        """(refs, due times, results)."""
        refs, due = _unpack_columns(self.packed, self.rows)
        results: Int64Array | int = (
            self.results
            if isinstance(self.results, int)
            else np.frombuffer(self.results, np.uint8).astype(np.int64)
        )
        return refs, due, results


def digest_of(batch: MessageBatch) -> bytes:
    """A checksum of the bodies, ids, keys, tags and headers of a batch.

    Times are left out, since a delay in a JSON body gives another due time at each send.
    """
    crc = 0
    for number, column in enumerate((batch.body, batch.id, batch.key, batch.tags, batch.headers)):
        if not column.empty:
            sizes = column.size
            if not isinstance(sizes, int) and alike(sizes):
                sizes = int(sizes[0])
            if isinstance(sizes, int):
                crc = crc32c(b"%d %d" % (number, sizes), crc)
            else:
                crc = crc32c(sizes.astype("<i8").tobytes(), crc32c(b"%d" % number, crc))
            crc = crc32c(column.block, crc)
    return crc.to_bytes(DIGEST_SIZE, "little")


def pack_answer(
    due: Int64Array, firsts: Int64Array, kept: Kept | None, position: int, digest: bytes
) -> FirstAnswer:
    """Pack an answer: the due times of a batch, and its first ref in each hour.

    `due` is ignored for rows that did not become messages.
    """
    n = len(due)
    members: dict[str, Any] = {"digest": digest, "firsts": firsts.astype("<i8").tobytes()}
    results: int | bytes = 0
    if kept is not None:
        rows, refs, kept_due, codes = kept
        members["kept"] = np.stack([rows, refs, kept_due]).astype("<i8").tobytes()
        column = np.zeros(len(due), np.uint8)
        column[rows] = codes
        results = column.tobytes()
        accepted = np.ones(len(due), np.bool_)
        accepted[rows] = False
        due = due[accepted]
    if len(due):
        base = members["base"] = int(due.min())
        if not alike(due):
            offsets = due - base
            width = members["width"] = _width(int(offsets.max()))
            members["due"] = offsets.astype(_OFFSET_TYPES[width]).tobytes()
    return FirstAnswer(n, msgpack.packb(members), results, position)


def _width(top: int) -> int:
    return next(w for w, bits in enumerate((8, 16, 32, 64)) if top < 1 << bits)


def _unpack_columns(packed: bytes, n: int) -> tuple[Int64Array, Int64Array]:
    members = msgpack.unpackb(packed)
    firsts = np.frombuffer(members["firsts"], "<i8")
    if "kept" not in members:
        due = _unpack_due(members, n)
        return _number(due, firsts), due
    rows, kept_refs, kept_due = np.frombuffer(members["kept"], "<i8").reshape(3, -1)
    accepted = np.ones(n, np.bool_)
    accepted[rows] = False
    refs, due = np.zeros(n, np.int64), np.zeros(n, np.int64)
    due[accepted] = _unpack_due(members, n - len(rows))
    refs[accepted] = _number(due[accepted], firsts)
    fill_kept(refs, due, rows, kept_refs, kept_due)
    return refs, due


def _unpack_due(members: dict[str, Any], n: int) -> Int64Array:
    due = np.full(n, members.get("base", 0), np.int64)
    if "due" in members:
        due += np.frombuffer(members["due"], _OFFSET_TYPES[members["width"]]).astype(np.int64)
    return due


def _number(due: Int64Array, firsts: Int64Array) -> Int64Array:
    """Refs of rows from their due times: in each hour they are numbered from its first ref on.

    Rows due before the hour floor are in the first of the hours.
    """
    if len(firsts) <= 1:
        return np.arange(len(due), dtype=np.int64) + int(firsts.sum())
    hours = firsts >> HOUR_SHIFT
    which = np.searchsorted(hours, np.maximum(due // HOUR_MS, hours[0]))
    order = np.argsort(which, kind="stable")
    counts = np.bincount(which, minlength=len(firsts))
    begins = np.cumsum(counts) - counts
    refs = np.empty(len(due), np.int64)
    refs[order] = np.repeat(firsts - begins, counts) + np.arange(len(due))
    return refs


def fill_kept(
    refs: Int64Array, due: Int64Array, rows: Int64Array, kept: Int64Array, kept_due: Int64Array
) -> None:
    """Fill in the answers of kept rows; a ref -(r + 1) means "the same as row r"."""
    same = kept < 0
    refs[rows[~same]], due[rows[~same]] = kept[~same], kept_due[~same]
    source = -(kept[same] + 1)
    refs[rows[same]], due[rows[same]] = refs[source], due[source]


@dataclass(slots=True, eq=False)
class _Producer(SnapshotNode):
    name: str
    used_ms: int
    top: int
    answers: dict[int, FirstAnswer] = field(default_factory=dict)
    dropped: int | None = None
    """The highest sequence whose answer was dropped to save memory."""

    def pack(self) -> bytes:
        """Pack for a checkpoint."""
        answers = [[s, a.rows, a.packed, a.results, a.position] for s, a in self.answers.items()]
        members: list[Any] = [self.name, self.used_ms, self.top, answers]
        if self.dropped is not None:
            members.append(self.dropped)
        return bytes(_PACKER.pack(members))


class ProducerTable:
    """Producers by name."""

    def __init__(
        self, producers_max: int = PRODUCERS_MAX, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> None:
        self._producers: dict[str, _Producer] = {}
        self.entries: SnapshotList[_Producer] = SnapshotList(_Producer.pack)
        """All producers, the least recently used first."""
        self._producers_max = producers_max
        self._answers: OrderedDict[int, tuple[_Producer, int]] = OrderedDict()
        """All answers by log position, the oldest first: (producer, sequence)."""
        self._answer_bytes_max = answer_bytes_max
        self.answer_bytes = 0
        self.dropped = 0
        self.answers_dropped = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of memory."""
        overstated = len(self._answers) * (ANSWER_COST - ANSWER_BYTES)
        return len(self) * PRODUCER_BYTES + self.answer_bytes - overstated

    def seen(self, producer: str, sequence: int, rows: int) -> FirstAnswer | None:
        """The first answer, or None for a new sequence. Raises ConflictError below the window."""
        known = self._producers.get(producer)
        if known is None:
            return None
        answer = known.answers.get(sequence)
        if answer is not None:
            if answer.rows != rows:
                raise ConflictError(
                    f"sequence {sequence} of this producer (an Idempotency-Key is one) was sent "
                    f"with {answer.rows} rows, not {rows}",
                    field="sequence",
                )
            return answer
        if known.dropped is not None and sequence <= known.dropped:
            raise ConflictError(
                f"the answer to sequence {sequence} of this producer is no longer kept: the send "
                "was accepted unless it was never made; look its messages up, or send them again "
                "with a higher sequence",
                field="sequence",
            )
        if sequence <= known.top - WINDOW:
            raise ConflictError(
                f"sequence {sequence} lies below the window of this producer, whose "
                f"newest is {known.top}",
                field="sequence",
            )
        return None

    def remember(self, producer: str, sequence: int, answer: FirstAnswer, now_ms: int) -> None:
        """Keep the first answer of a sequence."""
        self.expire(now_ms)
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer(producer, now_ms, sequence)
        else:
            self.entries.remove(known)
        self.entries.append(known)
        known.used_ms = now_ms
        known.top = max(known.top, sequence)
        self._keep(known, sequence, answer)
        for old in [s for s in known.answers if s <= known.top - WINDOW]:
            self._forget(known, old)
        while len(self._producers) > self._producers_max:
            self._drop(self.entries.first)
            self.dropped += 1
        # An answer is kept at least until the next send, however large it is.
        while self.answer_bytes > self._answer_bytes_max and len(self._answers) > 1:
            one, number = next(iter(self._answers.values()))
            self.entries.before_change(one)
            self._forget(one, number)
            one.dropped = number if one.dropped is None else max(one.dropped, number)
            self.answers_dropped += 1

    def _keep(self, known: _Producer, sequence: int, answer: FirstAnswer) -> None:
        if sequence in known.answers:
            self._forget(known, sequence)
        known.answers[sequence] = answer
        self._answers[answer.position] = known, sequence
        self.answer_bytes += answer.cost

    def _forget(self, known: _Producer, sequence: int) -> None:
        answer = known.answers.pop(sequence)
        del self._answers[answer.position]
        self.answer_bytes -= answer.cost

    def _drop(self, known: _Producer | None) -> None:
        assert known is not None
        del self._producers[known.name]
        self.entries.remove(known)
        for sequence in list(known.answers):
            self._forget(known, sequence)

    def clear(self) -> Work:
        """Forget all producers, in slices."""
        while (first := self.entries.first) is not None:
            self._drop(first)
            if len(self) % _FORGOTTEN_A_SLICE == 0:
                yield None

    def has_expired(self, now_ms: int) -> bool:
        """Whether `expire` would forget a producer."""
        first = self.entries.first
        return first is not None and first.used_ms + KEEP_MS <= now_ms

    def expire(self, now_ms: int) -> None:
        """Forget producers without a send for ten minutes. `now_ms` = leader time of a frame."""
        while self._producers and self.has_expired(now_ms):
            self._drop(self.entries.first)

    def set_back(self, now_ms: int) -> None:
        """The clock went back: no producer was used later than now."""
        self.entries.before_changes()
        for known in self._producers.values():
            known.used_ms = min(known.used_ms, now_ms)

    def jump_ahead(self, by_ms: int) -> None:
        """The clock jumped ahead: producers keep what is left of their ten minutes."""
        self.entries.before_changes()
        for known in self._producers.values():
            known.used_ms += by_ms

    def snapshot(self) -> PackedList:
        """For a checkpoint; `entries.work` fills it in slices."""
        return self.entries.snapshot(len(self._producers))

    def restore(self, saved: Iterable[Any]) -> None:
        """Fill the table from a checkpoint. The member `dropped` is optional."""
        for name, used_ms, top, answers, *more in saved:
            known = self._producers[name] = _Producer(name, used_ms, top)
            self.entries.append(known)
            known.dropped = more[0] if more else None
            for sequence, *rest in answers:
                self._keep(known, sequence, FirstAnswer(*rest))
        self._answers = OrderedDict(sorted(self._answers.items()))
