"""The table of transactions. Frames change it, and checkpoints store it.

A transaction is open until it is decided. A committed one is `Unpublished` until all its rows are
in their hours; then it is remembered for seven days, like aborted and expired ones. Nothing here
checks a call or touches a message.

A part is identified by (producer, part, attempt, number). Ten million rows are some thousand parts,
in a growing array with an index by identity (`PartTable`). Outstanding rows of each topic, staged
or committed and not published yet, are counted with the bytes of their parts, so that quotas
include them before they are sent, and so that a topic with outstanding rows counts as in use.

`StagedParts` reads parts back from the log, and caches those that are published next. The bytes of
a frame never change, so the cache is always valid. Reading and decoding parts may block and belongs
into a job; taking a range of one does not block.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from delaylog.storage.columns import alike
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.payloads import (
    PART,
    RESULTS,
    EndedTransaction,
    PartArray,
    PartIndexes,
    PublishDecision,
    StagedPart,
    wire_of,
)
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.messages.batch import BatchRanges, MessageBatch, decode_send

# ----------------------------------------------------------------- parts of an open transaction

_FIRST_PARTS: Final = 16


class PartSummary(NamedTuple):
    """Topic, size and checksum of a part."""

    topic: int
    rows: int
    bytes: int
    crc: int


class PartTable:
    """Parts in the order they were staged."""

    def __init__(self) -> None:
        self._parts: PartArray = np.zeros(_FIRST_PARTS, PART)
        self._count = 0
        self._known: dict[tuple[str, int, int, int], int] = {}
        self._producers: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def producers(self) -> list[str]:
        """Names of the producers, in the order of their first parts."""
        return self._producers

    @property
    def columns(self) -> PartArray:
        """All parts, in the order they were staged."""
        return self._parts[: self._count]

    def find(self, producer: str, part: int, attempt: int, number: int) -> PartSummary | None:
        """The part with this identity; None if there is none."""
        at = self._known.get((producer, part, attempt, number))
        if at is None:
            return None
        known = self._parts[at]
        return PartSummary(
            int(known["topic"]), int(known["rows"]), int(known["bytes"]), int(known["crc"])
        )

    def add(self, part: StagedPart, position: int, size: int) -> None:
        """Add a part of `size` bytes, staged by the frame at `position`."""
        producer = self._numbers.get(part.producer)
        if producer is None:
            producer = self._numbers[part.producer] = len(self._producers)
            self._producers.append(part.producer)
        if self._count == len(self._parts):
            self._parts = np.concatenate([self._parts, np.zeros(self._count, PART)])
        self._parts[self._count] = (
            position,
            part.attempt,
            producer,
            part.part,
            part.number,
            part.topic,
            part.rows,
            size,
            part.crc,
            0,
        )
        self._note(part.producer, part.part, part.attempt, part.number)

    def _note(self, producer: str, part: int, attempt: int, number: int) -> None:
        self._known[producer, part, attempt, number] = self._count
        self._count += 1

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"producers": list(self._producers), "parts": self.columns.tobytes()}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> PartTable:
        """A table from a checkpoint."""
        out = cls()
        parts = np.frombuffer(saved["parts"], PART)
        out._parts = np.concatenate([parts, np.zeros(_FIRST_PARTS, PART)])
        out._producers = list(saved["producers"])
        out._numbers = {name: number for number, name in enumerate(out._producers)}
        keys = zip(
            parts["producer"].tolist(),
            parts["part"].tolist(),
            parts["attempt"].tolist(),
            parts["number"].tolist(),
            strict=True,
        )
        for producer, part, attempt, number in keys:
            out._note(out._producers[producer], part, attempt, number)
        return out

    def take(self, indexes: PartIndexes) -> PartArray:
        """Copies of the parts at these indexes, in this order."""
        return self.columns[indexes]


# -------------------------------------------------------- open, and committed but not published

ROW_BYTES: Final = 112 + 32
"""Bytes of a row in its hour besides its record: index entry and state."""
READ_BYTES_MAX: Final = 1 << 20
"""Bytes of small parts that are read together: more need as much memory as one large part."""
READ_PARTS_MAX: Final = 64
"""Parts that are read together: some 100 us each in a job, which delays the event loop."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is not decided."""

    number: int
    id: str
    began_ms: int
    ttl_ms: int
    """How long it stays open after each call about it."""
    expires_ms: int
    parts: PartTable = field(default_factory=PartTable)
    rows: int = 0
    bytes: int = 0
    owner: str = ""
    """The principal that began it; empty where nobody had to authenticate."""


@dataclass(slots=True)
class Unpublished:
    """A committed transaction whose rows are being published."""

    number: int
    id: str
    decided_ms: int
    position: int
    """Position of the COMMIT frame, at which its messages count as sent."""
    parts: PartArray
    """The parts that won, in the order of publication."""
    rows: int
    bytes: int
    discarded_rows: int
    published: int = 0
    """Rows published so far."""
    at: int = 0
    """Index of the next part, or the one that is partly published."""
    row: int = 0
    """Its next row."""
    counts: list[int] = field(default_factory=lambda: [0] * len(RESULTS))

    @property
    def done(self) -> bool:
        """Whether all rows are published."""
        return self.at == len(self.parts)

    @property
    def log_from(self) -> int:
        """Log position of the first part that is still needed."""
        return int(self.parts["position"][self.at])

    def next_parts(self) -> list[int]:
        """Log positions of the next part and of the small ones behind it, to be read together."""
        parts = self.parts[self.at : self.at + READ_PARTS_MAX]
        ends = np.cumsum(parts["bytes"], dtype=np.int64)
        count = int(np.searchsorted(ends, READ_BYTES_MAX, side="right"))
        return [int(position) for position in parts["position"][: max(count, 1)]]

    @property
    def debt_bytes(self) -> int:
        """Approximate disk space that its rows will still take."""
        left = self.rows - self.published
        return self.bytes * left // max(self.rows, 1) + left * ROW_BYTES


# ------------------------------------------------------------------- outstanding rows of topics


@dataclass(slots=True)
class Outstanding:
    """Outstanding rows of one topic."""

    rows: int = 0
    bytes: int = 0
    staged_rows: int = 0
    """Rows in open transactions."""


NOTHING_OUTSTANDING: Final = Outstanding()


class OutstandingTable:
    """Outstanding rows by topic number."""

    def __init__(self) -> None:
        self._outstanding: dict[int, Outstanding] = {}

    def __contains__(self, topic: int) -> bool:
        return topic in self._outstanding

    def of(self, topic: int) -> Outstanding:
        """The outstanding rows of a topic. The caller must not change the result."""
        return self._outstanding.get(topic, NOTHING_OUTSTANDING)

    def add(self, topic: int, rows: int, size: int, *, staged: int = 0) -> None:
        """Add to the outstanding rows of a topic; arguments may be negative."""
        outstanding = self._outstanding.setdefault(topic, Outstanding())
        outstanding.rows += rows
        outstanding.bytes += size
        outstanding.staged_rows += staged
        if outstanding.rows == 0:
            assert (outstanding.bytes, outstanding.staged_rows) == (0, 0), (
                "each row was counted with its bytes"
            )
            del self._outstanding[topic]

    def add_parts(self, parts: PartArray, *, staged: bool = False) -> None:
        """Add the rows of parts."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, rows, size, staged=rows if staged else 0)

    def remove_staged(self, parts: PartArray) -> None:
        """Subtract parts of a transaction that is not open any more."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, -rows, -size, staged=-rows)


def by_topic(parts: PartArray) -> Iterator[tuple[int, int, int]]:
    """(topic number, rows, bytes) of these parts, for each topic."""
    topics = parts["topic"]
    if len(parts) == 0:
        return
    if alike(topics):
        yield int(topics[0]), int(parts["rows"].sum()), int(parts["bytes"].sum())
        return
    found, which = np.unique(topics, return_inverse=True)
    rows, sizes = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    np.add.at(rows, which, parts["rows"])
    np.add.at(sizes, which, parts["bytes"])
    yield from zip(found.tolist(), rows.tolist(), sizes.tolist(), strict=True)


def bytes_below(part: np.void, row: int) -> int:
    """Approximate bytes of rows [0, row) of a part; exact for all rows."""
    return row * int(part["bytes"]) // int(part["rows"])


# ------------------------------------------------------------------------------------ the table

ENDED_KEPT_MS: Final = 7 * 86_400_000
"""How long the outcome of a transaction is remembered."""
ENDED_KEPT_MAX: Final = 100_000
"""Ended transactions that are remembered: about 200 bytes each. The oldest are forgotten first."""


class TransactionTable:
    """All transactions."""

    def __init__(self) -> None:
        self.open: dict[str, OpenTransaction] = {}
        self.unpublished: dict[int, Unpublished] = {}
        """By number, in the order of commit and publication."""
        self._publishing: dict[str, Unpublished] = {}
        self._by_number: dict[int, OpenTransaction] = {}
        self._ended: dict[str, bytes] = {}
        self._ended_names: deque[str] = deque()
        """The oldest first. Not a dict, so that a checkpoint copies this and the next at once."""
        self._ended_saved: deque[bytes] = deque()
        self._outstanding = OutstandingTable()
        self._shifted_ms = 0
        self.next_number = 1
        self.staged_bytes = 0
        """Bytes of the parts of open transactions."""
        self.staged_rows = 0
        self.staged_parts = 0
        self.discarded_rows = 0
        """Rows that were staged and never committed, since the folder was created."""
        self.published_rows = 0
        self.published_bytes = 0
        """Bytes of the parts of published rows, since this start."""
        self.dropped = 0
        """Ended transactions that were forgotten because of `ENDED_KEPT_MAX`."""

    # ------------------------------------------------------------------ look-ups

    def __len__(self) -> int:
        return len(self.open) + len(self.unpublished) + len(self._ended)

    def publishing(self, name: str) -> Unpublished | None:
        """A committed transaction that is not published completely, by id."""
        return self._publishing.get(name)

    def ended(self, name: str) -> EndedTransaction | None:
        """A transaction that has ended, by id."""
        raw = self._ended.get(name)
        return None if raw is None else EndedTransaction.decode(raw)

    def newest_ended(self, count: int) -> list[tuple[str, EndedTransaction]]:
        """The transactions that ended last, newest first."""
        newest = itertools.islice(
            zip(reversed(self._ended_names), reversed(self._ended_saved), strict=True), count
        )
        return [(name, EndedTransaction.decode(raw)) for name, raw in newest]

    @property
    def ended_count(self) -> int:
        """Number of ended transactions that are remembered."""
        return len(self._ended)

    def has_rows_of(self, topic: int) -> bool:
        """Whether a topic has outstanding rows, so that it is in use."""
        return topic in self._outstanding

    def outstanding_of(self, topic: int) -> Outstanding:
        """Outstanding rows of a topic. The caller must not change the result."""
        return self._outstanding.of(topic)

    def on_way(self, topic: int, position: int) -> bool:
        """Whether rows of a topic that were committed before `position` are unpublished."""
        return any(
            one.position < position and bool((one.parts["topic"][one.at :] == topic).any())
            for one in self.unpublished.values()
        )

    @property
    def unpublished_rows(self) -> int:
        """Committed rows that are not in their hours yet."""
        return sum(one.rows - one.published for one in self.unpublished.values())

    def lag_ms(self, now_ms: int) -> int:
        """How long the oldest unpublished transaction has been waiting."""
        first = next(iter(self.unpublished.values()), None)
        return 0 if first is None else max(now_ms - first.decided_ms, 0)

    @property
    def debt_bytes(self) -> int:
        """Approximate disk space that committed rows will still take."""
        # Every send asks, and there is seldom one.
        if not self.unpublished:
            return 0
        return sum(one.debt_bytes for one in self.unpublished.values())

    @property
    def staged_debt_bytes(self) -> int:
        """Approximate disk space that open transactions would take if all were committed."""
        return self.staged_bytes + self.staged_rows * ROW_BYTES

    def log_from(self, position: int) -> int:
        """Position from which the log is needed: that of the first part that may still be read."""
        opened = [int(one.parts.columns["position"][0]) for one in self.open.values() if one.rows]
        return min([position, *opened, *(one.log_from for one in self.unpublished.values())])

    def oldest_open(self) -> OpenTransaction | None:
        """The open transaction with the oldest part in the log."""
        staged = [one for one in self.open.values() if len(one.parts)]
        return min(staged, key=lambda one: int(one.parts.columns["position"][0]), default=None)

    def overdue(self, now_ms: int) -> list[OpenTransaction]:
        """Open transactions past their expiry time."""
        return [one for one in self.open.values() if one.expires_ms <= now_ms]

    def forgets(self, before_ms: int) -> bool:
        """Whether a remembered transaction ended before `before_ms`."""
        return bool(self._ended) and self._kept_from(self._ended_saved[0]) < before_ms

    def _kept_from(self, raw: bytes) -> int:
        return EndedTransaction.decode(raw).kept_from_ms + self._shifted_ms

    # ------------------------------------------------------------------ frames

    def begin(
        self,
        number: int,
        name: str,
        *,
        ttl_ms: int,
        expires_ms: int,
        leader_time_ms: int,
        owner: str = "",
    ) -> None:
        """Begin a transaction, or give it more time."""
        known = self._by_number.get(number)
        if known is not None:
            known.ttl_ms, known.expires_ms = ttl_ms, expires_ms
            return
        self.next_number = max(self.next_number, number + 1)
        made = OpenTransaction(number, name, leader_time_ms, ttl_ms, expires_ms, owner=owner)
        self.open[name] = self._by_number[number] = made

    def stage(self, part: StagedPart, position: int, size: int) -> None:
        """Add a part that the frame at `position` has staged."""
        one = self._by_number[part.transaction]
        one.parts.add(part, position, size)
        one.expires_ms = part.expires_ms
        one.rows += part.rows
        one.bytes += size
        self.staged_rows += part.rows
        self.staged_bytes += size
        self.staged_parts += 1
        self._outstanding.add(part.topic, part.rows, size, staged=part.rows)

    def commit(
        self, number: int, indexes: np.ndarray[Any, Any], leader_time_ms: int, position: int
    ) -> Unpublished:
        """Commit a transaction: the parts at `indexes` have won."""
        one = self._leave(number)
        parts = one.parts.take(indexes)
        rows = int(parts["rows"].sum())
        self._outstanding.add_parts(parts)
        lost = one.rows - rows
        self.discarded_rows += lost
        decided = Unpublished(
            number,
            one.id,
            leader_time_ms,
            position,
            parts,
            rows,
            int(parts["bytes"].sum()),
            lost,
        )
        if decided.done:
            self._end_published(decided)
        else:
            self.unpublished[number] = self._publishing[one.id] = decided
        return decided

    def end(self, number: int, state: str, leader_time_ms: int) -> None:
        """End a transaction that was aborted or has expired."""
        one = self._leave(number)
        self.discarded_rows += one.rows
        none = (0,) * len(RESULTS)
        kept_from = leader_time_ms - self._shifted_ms
        self._remember(
            one.id,
            EndedTransaction(
                state,
                len(one.parts),
                one.rows,
                one.bytes,
                one.rows,
                none,
                leader_time_ms,
                kept_from,
            ),
        )

    def forget(self, before_ms: int) -> None:
        """Forget transactions that ended before `before_ms`."""
        while self.forgets(before_ms):
            self._forget_first()

    def published(self, decision: PublishDecision) -> None:
        """Note that a range of rows was published."""
        one = self.unpublished[decision.transaction]
        part = one.parts[one.at]
        assert decision.part == int(part["position"]), "parts are published in order"
        assert decision.first == one.row, "so are their rows"
        n = decision.stop - decision.first
        size = bytes_below(part, decision.stop) - bytes_below(part, decision.first)
        one.published += n
        self.published_rows += n
        self.published_bytes += size
        one.row = decision.stop
        one.counts = [a + b for a, b in zip(one.counts, decision.counts, strict=True)]
        self._outstanding.add(int(part["topic"]), -n, -size)
        if one.row == int(part["rows"]):
            one.at, one.row = one.at + 1, 0
        if one.done:
            del self.unpublished[one.number], self._publishing[one.id]
            self._end_published(one)

    def _leave(self, number: int) -> OpenTransaction:
        """Remove a transaction from the open ones."""
        one = self._by_number.pop(number)
        del self.open[one.id]
        self.staged_bytes -= one.bytes
        self.staged_rows -= one.rows
        self.staged_parts -= len(one.parts)
        self._outstanding.remove_staged(one.parts.columns)
        return one

    def _end_published(self, one: Unpublished) -> None:
        kept_from = one.decided_ms - self._shifted_ms
        self._remember(
            one.id,
            EndedTransaction(
                "committed",
                len(one.parts),
                one.rows,
                one.bytes,
                one.discarded_rows,
                tuple(one.counts),
                one.decided_ms,
                kept_from,
            ),
        )

    def _remember(self, name: str, ended: EndedTransaction) -> None:
        raw = ended.encode()
        if name in self._ended:
            self._ended_saved[self._ended_names.index(name)] = raw
        else:
            self._ended_names.append(name)
            self._ended_saved.append(raw)
        self._ended[name] = raw
        while len(self._ended) > ENDED_KEPT_MAX:
            self._forget_first()
            self.dropped += 1

    def _forget_first(self) -> None:
        del self._ended[self._ended_names.popleft()]
        self._ended_saved.popleft()

    def shift(self, step_ms: int) -> None:
        """The clock jumped: open transactions keep their remaining time."""
        self._shifted_ms += step_ms
        for one in self.open.values():
            one.began_ms += step_ms
            one.expires_ms += step_ms
        for decided in self.unpublished.values():
            # Otherwise, after a step back, its time of decision would lie in the future, and delays
            # count from it.
            decided.decided_ms += min(step_ms, 0)

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self, position: int) -> dict[str, Any]:
        """For a checkpoint at `position`."""
        return {
            "log_from": self.log_from(position),
            "next": self.next_number,
            "shifted": self._shifted_ms,
            "discarded": self.discarded_rows,
            "published": self.published_rows,
            "dropped": self.dropped,
            "open": [
                [
                    one.number,
                    one.id,
                    one.began_ms,
                    one.ttl_ms,
                    one.expires_ms,
                    one.parts.snapshot(),
                ]
                for one in self.open.values()
            ],
            "owners": {one.number: one.owner for one in self.open.values() if one.owner},
            "unpublished": [
                [
                    one.number,
                    one.id,
                    one.decided_ms,
                    one.position,
                    one.parts.tobytes(),
                    one.discarded_rows,
                    one.published,
                    one.at,
                    one.row,
                    list(one.counts),
                ]
                for one in self.unpublished.values()
            ],
            "ended_ids": list(self._ended_names),
            "ended": b"".join(self._ended_saved),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Fill an empty table from a checkpoint."""
        self.next_number, self._shifted_ms = saved["next"], saved["shifted"]
        self.discarded_rows, self.published_rows = saved["discarded"], saved["published"]
        self.dropped = saved["dropped"]
        for number, name, began_ms, ttl_ms, expires_ms, parts in saved["open"]:
            table = PartTable.restored(parts)
            opened = OpenTransaction(number, name, began_ms, ttl_ms, expires_ms, table)
            opened.owner = saved["owners"].get(number, "")
            self._restore_open(opened)
        for number, name, decided_ms, position, parts, lost, published, at, row, counts in saved[
            "unpublished"
        ]:
            columns = np.frombuffer(parts, PART)
            one = Unpublished(
                number,
                name,
                decided_ms,
                position,
                columns,
                int(columns["rows"].sum()),
                int(columns["bytes"].sum()),
                lost,
                published,
                at,
                row,
                counts,
            )
            self._restore_unpublished(one)
        size = len(saved["ended"]) // max(len(saved["ended_ids"]), 1)
        for number, name in enumerate(saved["ended_ids"]):
            raw = saved["ended"][number * size : (number + 1) * size]
            self._ended[name] = raw
            self._ended_names.append(name)
            self._ended_saved.append(raw)

    def _restore_open(self, one: OpenTransaction) -> None:
        parts = one.parts.columns
        one.rows, one.bytes = int(parts["rows"].sum()), int(parts["bytes"].sum())
        self.open[one.id] = self._by_number[one.number] = one
        self.staged_bytes += one.bytes
        self.staged_rows += one.rows
        self.staged_parts += len(parts)
        self._outstanding.add_parts(parts, staged=True)

    def _restore_unpublished(self, one: Unpublished) -> None:
        left = one.parts[one.at :]
        self._outstanding.add_parts(left)
        self._outstanding.add(int(left["topic"][0]), -one.row, -bytes_below(left[0], one.row))
        self.unpublished[one.number] = self._publishing[one.id] = one


# --------------------------------------------------------- staged parts, read back from the log

_ROWS_MAX = 2**31


class StagedParts:
    """The staged parts in one log."""

    def __init__(self, log: PhysicalLog) -> None:
        self._log = log
        self._loaded: dict[int, BatchRanges] = {}

    def has(self, position: int) -> bool:
        """Whether a part is cached."""
        return position in self._loaded

    def load(self, positions: Sequence[int]) -> None:
        """Cache the parts of the frames at `positions`, and no others. Any thread.

        Raises CorruptionError.
        """
        self._loaded = {position: BatchRanges(self._read(position)) for position in positions}

    def _read(self, position: int) -> MessageBatch:
        frame = self._log.frame_at(position)
        if frame.header.kind != FrameKind.TXN:
            raise CorruptionError("a part is missing", path="log", position=position)
        return decode_send(wire_of(frame.payload), rows_max=_ROWS_MAX)

    def rows(self, position: int, first: int, stop: int, decided_ms: int) -> MessageBatch:
        """Rows [first, stop) of a part. Delays count from the commit."""
        if not self.has(position):
            self.load([position])
        batch = self._loaded[position].take(first, stop)
        if batch.delay_ms is not None:
            batch.deliver_at_ms, batch.delay_ms = batch.delay_ms + decided_ms, None
        return batch

    def drop(self) -> None:
        """Empty the cache: nothing is being published."""
        self._loaded = {}
