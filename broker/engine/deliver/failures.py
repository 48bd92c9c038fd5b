"""The failed attempts at messages: reason, consumer and time of each, in bounded memory.

SETTLE and MOVE frames fill the table (`note_failures`), and checkpoints keep it, so it outlives the
log's segments, and every node has it. It consists of parts of a few thousand rows of 40 bytes, each
with its texts once, since most messages fail for the same few reasons. A full table forgets its
oldest part, which costs nothing, so no call waits for it.

The leases tell who had the messages, so `note_failures` runs before they are closed. An attempt
that did not count, because the consumer had not begun it, has not failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.deliver.leases import Lease
from delaylog.storage.columns import Mask, grouped, put_rows, take_rows
from delaylog.storage.layout import Cause, Int64Array
from delaylog.storage.messages.batch import Column

if TYPE_CHECKING:
    from delaylog.broker.engine.state import EngineState


FAILED: Final = np.dtype(
    [
        ("origin", "<i8"),
        ("at_ms", "<i8"),
        ("topic", "<u4"),
        ("group", "<u4"),
        ("consumer", "<u4"),
        ("address", "<u4"),
        ("reason", "<u4"),
        ("attempt", "<u2"),
        ("how", "u1"),
        ("zero", "u1"),
    ]
)
"""A failed attempt. `consumer`, `address` and `reason` are numbers of texts."""
assert FAILED.itemsize == 40
FailedRows = npt.NDArray[np.void]
FAILURES_MAX: Final = 262_144
"""Failed attempts that are kept, at most: 10 MiB."""
TEXT_BYTES_MAX: Final = 32 << 20
"""Memory of their texts, at most; a reason has at most 1 KiB."""
PART_ROWS: Final = 4_096
PART_TEXT_BYTES: Final = 1 << 20
"""Memory of a part's texts at which the next part begins."""
_TEXT_OVERHEAD: Final = 160
"""Bytes of memory that a text takes beside its characters: its object, and its number."""
ATTEMPTS_MAX: Final = 32
"""Failed attempts of one message that are kept, the last ones."""
HOW: Final = ("nack", "lease_expired", "rejected")
"""How attempts fail: the consumer returned the message, was not heard of, or refused it for good.
"""
NACK, LEASE_EXPIRED, REJECTED = range(len(HOW))
_TEXTS: Final = ("consumer", "address", "reason")
_LOW: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one attempt at a message failed."""

    attempt: int
    at_ms: int
    how: str
    """One of `HOW`."""
    reason: str
    """In the words of the consumer; "" = it said nothing."""
    consumer: str
    """Its name; "" = it has none."""
    address: str
    """Where it received the message from; "" = not known, or inside this process."""

    def members(self) -> dict[str, Any]:
        """Its members in answers."""
        return {
            "attempt": self.attempt,
            "at_ms": self.at_ms,
            "cause": self.how,
            "reason": self.reason or None,
            "consumer": self.consumer or None,
            "address": self.address or None,
        }


class FailurePart:
    """Failed attempts, oldest first. Rows and texts are added; neither is ever changed."""

    __slots__ = ("_numbers", "_rows", "count", "text_bytes", "texts")

    def __init__(self) -> None:
        self._rows = np.zeros(PART_ROWS, FAILED)
        self.count = 0
        self.texts: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}
        self.text_bytes = 0

    @property
    def rows(self) -> FailedRows:
        """A view of all rows; later rows are not in it."""
        return self._rows[: self.count]

    @property
    def full(self) -> bool:
        """Whether the next rows belong to another part."""
        return self.count == PART_ROWS or self.text_bytes >= PART_TEXT_BYTES

    def of(self, topic: int, group: int | None) -> Mask:
        """Mask of the rows of a topic, or of a group of it."""
        mask: Mask = self.rows["topic"] == topic
        return mask if group is None else mask & (self.rows["group"] == group)

    def add(self, columns: Mapping[str, Any], rows: slice, texts: Mapping[str, str]) -> None:
        """Add these rows of columns, which have all the same texts."""
        n = rows.stop - rows.start
        new = self._rows[self.count : self.count + n]
        for name, column in columns.items():
            new[name] = column if isinstance(column, int) else column[rows]
        for name, text in texts.items():
            new[name] = self._number(text)
        self.count += n

    def take(self, rows: FailedRows, texts: Sequence[str]) -> None:
        """Add rows of another part, whose texts these are."""
        number_of = np.zeros(len(texts), np.uint32)
        used = np.zeros(len(texts), np.bool_)
        for name in _TEXTS:
            used[rows[name]] = True
        for number in np.flatnonzero(used).tolist():
            number_of[number] = self._number(texts[number])
        new = self._rows[self.count : self.count + len(rows)]
        put_rows(new, slice(len(rows)), rows)
        for name in _TEXTS:
            new[name] = number_of[rows[name]]
        self.count += len(rows)

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
            self.text_bytes += len(text.encode()) + _TEXT_OVERHEAD
        return number


class Wanted:
    """The messages of a group whose failures are looked for."""

    def __init__(self, topic: int, group: int, origins: Int64Array) -> None:
        self._topic, self._group = topic, group
        self._order = np.argsort(origins)
        self._origins = origins[self._order]
        self._known = np.zeros(_LOW + 1, np.bool_)
        self._known[origins & _LOW] = True

    def among(self, part: FailurePart) -> tuple[Int64Array, Int64Array]:
        """(places of the failures in a part, the places of their messages in `origins`)."""
        rows = part.rows
        # Most rows are of other messages, which the low bits tell in a tenth of the time of a
        # search, and in less time than a comparison of topics and groups.
        at = np.flatnonzero(self._known[rows["origin"] & _LOW])
        if len(at) == 0:
            return at, at
        failed = rows["origin"][at]
        slot = np.minimum(np.searchsorted(self._origins, failed), len(self._origins) - 1)
        mine = self._origins[slot] == failed
        mine &= (rows["topic"][at] == self._topic) & (rows["group"][at] == self._group)
        return at[mine], self._order[slot[mine]]


class FailureTable:
    """All failed attempts of a node's messages that are kept, oldest first."""

    def __init__(self) -> None:
        self._parts: list[FailurePart] = []
        self.tidied = 0
        """Rows that the last `tidy` left."""

    def __len__(self) -> int:
        return sum(part.count for part in self._parts)

    @property
    def parts(self) -> list[FailurePart]:
        """The parts that there are now."""
        return list(self._parts)

    def add(self, columns: Mapping[str, Any], n: int, texts: Mapping[str, str]) -> None:
        """Add `n` failed attempts: columns of `FAILED`, and the same texts for all of them."""
        done = 0
        while done < n:
            part = self._open()
            stop = min(n, done + PART_ROWS - part.count)
            part.add(columns, slice(done, stop), texts)
            done = stop

    def _open(self) -> FailurePart:
        """The part for new rows."""
        parts = self._parts
        if parts and not parts[-1].full:
            return parts[-1]
        while parts and (
            len(self) > FAILURES_MAX - PART_ROWS
            or sum(part.text_bytes for part in parts) > TEXT_BYTES_MAX - PART_TEXT_BYTES
        ):
            del parts[0]
        parts.append(FailurePart())
        return parts[-1]

    def of(self, topic: int, group: int, origins: Int64Array) -> dict[int, list[Failure]]:
        """The failures of each of these messages that has some, oldest first."""
        out: dict[int, list[Failure]] = {}
        wanted = Wanted(topic, group, origins)
        for part in self._parts:
            at, _ = wanted.among(part)
            for row in take_rows(part.rows, at):
                failure = Failure(
                    int(row["attempt"]),
                    int(row["at_ms"]),
                    HOW[row["how"]],
                    part.texts[row["reason"]],
                    part.texts[row["consumer"]],
                    part.texts[row["address"]],
                )
                out.setdefault(int(row["origin"]), []).append(failure)
        return {origin: failures[-ATTEMPTS_MAX:] for origin, failures in out.items()}

    def keep(self, part: FailurePart, kept: Mask) -> None:
        """Forget all rows of a part but these; rows behind the mask are kept.

        Does nothing if the part was forgotten or replaced meanwhile.
        """
        at = next((at for at, each in enumerate(self._parts) if each is part), None)
        if at is None:
            return
        every = np.ones(part.count, np.bool_)
        every[: len(kept)] = kept
        rows, into = take_rows(part.rows, every), self._parts[at - 1] if at else None
        if len(rows) == 0:
            del self._parts[at]
            return
        if into is None or into.full or into.count + len(rows) > PART_ROWS:
            into = self._parts[at] = FailurePart()
        else:
            del self._parts[at]
        into.take(rows, part.texts)

    def drop(self, topic: int, group: int | None = None) -> None:
        """Forget the failures of a topic, or of a group of it."""
        for part in self.parts:
            mine = part.of(topic, group)
            if np.count_nonzero(mine):
                self.keep(part, ~mine)

    def saved(self) -> dict[str, Any]:
        """Its members of a checkpoint."""
        rows = np.empty(len(self), FAILED)
        texts, first = [""], 0
        for part in self._parts:
            mine = rows[first : first + part.count]
            put_rows(mine, slice(part.count), part.rows)
            for name in _TEXTS:
                # Text 0 is "" in each part.
                mine[name] += np.where(mine[name] > 0, len(texts) - 1, 0).astype(np.uint32)
            first += part.count
            texts += part.texts[1:]
        return {"failures": rows.tobytes(), "failure_texts": texts}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Fill the empty table from a checkpoint."""
        rows = np.frombuffer(saved["failures"], FAILED)
        for first in range(0, len(rows), PART_ROWS):
            part = FailurePart()
            part.take(rows[first : first + PART_ROWS], saved["failure_texts"])
            self._parts.append(part)


# --------------------------------------------------------------------------- how frames fill it

RETURNS: Final = (Cause.NACK, Cause.LEASE_EXPIRED)
"""Causes of a frame that returns messages after a failed attempt."""
FAILURES: Final = (*RETURNS, Cause.RETRIES, Cause.TTL)
"""Causes of a frame that ends an attempt, or a message after its last one, without success."""


class Failed(NamedTuple):
    """What a frame says of attempts that ended without success."""

    topic: int
    group: int
    refs: Int64Array
    attempts: Int64Array
    """Attempts of each message that count from now on."""
    cause: int
    died: bool
    """Whether they are dead letters now."""
    at_ms: int
    reason: str


def note_failures(state: EngineState, failed: Failed, leases: Column | None) -> None:
    """Add the attempts that have failed to the table. `leases` as in a SettleDecision."""
    if leases is None or len(failed.refs) == 0:
        return
    if isinstance(leases, int):
        parts = [(leases, np.arange(len(failed.refs)))]
    else:
        parts = [(number, at) for number, at in grouped(leases)]
    for number, at in parts:
        lease = state.leases.get(number)
        if lease is not None:
            _note_lease(state, failed, lease, at)


def _note_lease(state: EngineState, failed: Failed, lease: Lease, at: Int64Array) -> None:
    refs = failed.refs[at]
    order = np.argsort(lease.refs, kind="stable")
    rows = order[np.minimum(np.searchsorted(lease.refs, refs, sorter=order), len(order) - 1)]
    tried = (lease.refs[rows] == refs) & (failed.attempts[at] >= lease.attempts[rows])
    rows = rows[tried]
    if len(rows) == 0:
        return
    if failed.died and failed.cause == Cause.NACK:
        how: int | np.ndarray = REJECTED
    elif failed.cause in RETURNS or failed.reason:
        how = LEASE_EXPIRED if failed.cause == Cause.LEASE_EXPIRED else NACK
    else:
        # The message died of its last attempt, however that ended.
        how = np.where(lease.deadlines[rows] <= failed.at_ms, LEASE_EXPIRED, NACK)
    columns = {
        "origin": lease.origins[rows],
        "attempt": lease.attempts[rows],
        "topic": failed.topic,
        "group": failed.group,
        "at_ms": failed.at_ms,
        "how": how,
    }
    texts = {"reason": failed.reason, "consumer": lease.consumer, "address": lease.address}
    state.failures.add(columns, len(rows), texts)
