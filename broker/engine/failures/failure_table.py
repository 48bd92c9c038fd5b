"""The failed attempts at messages: reason, consumer and time of each, in bounded memory.

SETTLE and MOVE frames fill the table, and checkpoints keep it, so it outlives the log's segments,
and every node has it. Rows are columns of 40 bytes; texts are stored once each, since most messages
fail for the same few reasons. If the table is full, the oldest quarter of it is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.questions import Mask
from delaylog.storage.layout import Int64Array

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
"""Failed attempts that are kept: 10 MiB, and as much in each checkpoint."""
TEXT_BYTES_MAX: Final = 16 << 20
"""Bytes of their distinct texts; a reason has at most 1 KiB."""
ATTEMPTS_MAX: Final = 32
"""Failed attempts of one message that are kept, the last ones."""
HOW: Final = ("nack", "lease_expired", "rejected")
"""How attempts fail: the consumer returned the message, was not heard of, or refused it for good.
"""
NACK, LEASE_EXPIRED, REJECTED = range(len(HOW))
_FIRST_ROOM: Final = 256
_TEXTS: Final = ("consumer", "address", "reason")


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


class FailureTable:
    """All failed attempts of a node's messages that are kept, oldest first."""

    def __init__(self) -> None:
        self._rows = np.zeros(_FIRST_ROOM, FAILED)
        self._count = 0
        self._texts: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}
        self._text_bytes = 0
        self.forgot = 0
        """How often rows were forgotten, so that the numbers of rows changed."""
        self.tidied = 0
        """Rows that the last `tidy` left."""

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> FailedRows:
        """A view of all rows, which never change; later rows are not in it."""
        return self._rows[: self._count]

    def text(self, number: int) -> str:
        """A text by its number."""
        return self._texts[number]

    def number_of(self, text: str) -> int:
        """The number of a text; -1 if no row has it."""
        return self._numbers.get(text, -1)

    def add(self, columns: Mapping[str, Any], n: int, texts: Mapping[str, str]) -> None:
        """Add `n` failed attempts: columns of `FAILED`, and the same texts for all of them."""
        if self._count + n > FAILURES_MAX or self._text_bytes > TEXT_BYTES_MAX:
            kept = np.zeros(self._count, np.bool_)
            kept[self._count // 4 + 1 :] = True
            self.keep(kept)
            n = min(n, FAILURES_MAX - self._count)
        if self._count + n > len(self._rows):
            # A view of the old array may be in use, so it is never resized.
            grown = np.zeros(max(2 * len(self._rows), self._count + n), FAILED)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        new = self._rows[self._count : self._count + n]
        for name, column in columns.items():
            new[name] = column if isinstance(column, int) else column[:n]
        for name, text in texts.items():
            new[name] = self._number(text)
        self._count += n

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
            self._text_bytes += len(text.encode())
        return number

    def of(self, topic: int, group: int, origins: Int64Array) -> dict[int, list[Failure]]:
        """The failures of each of these messages that has some, oldest first."""
        rows = self.rows
        if len(rows) == 0:
            return {}
        at = np.flatnonzero(np.isin(rows["origin"], origins))
        mine = rows[at]
        mine = mine[(mine["topic"] == topic) & (mine["group"] == group)]
        out: dict[int, list[Failure]] = {}
        for row in mine:
            failure = Failure(
                int(row["attempt"]),
                int(row["at_ms"]),
                HOW[row["how"]],
                self._texts[row["reason"]],
                self._texts[row["consumer"]],
                self._texts[row["address"]],
            )
            out.setdefault(int(row["origin"]), []).append(failure)
        return {origin: failures[-ATTEMPTS_MAX:] for origin, failures in out.items()}

    def keep(self, kept: Mask) -> None:
        """Forget all rows but these; rows behind the mask are kept."""
        self.forgot += 1
        every = np.ones(self._count, np.bool_)
        every[: len(kept)] = kept
        rows = self.rows[every]
        texts = self._texts
        self._texts, self._numbers, self._text_bytes = [""], {"": 0}, 0
        used = np.unique(np.concatenate([rows[name] for name in _TEXTS]))
        number_of = np.zeros(len(texts), np.uint32)
        for number in used.tolist():
            number_of[number] = self._number(texts[number])
        for name in _TEXTS:
            rows[name] = number_of[rows[name]]
        self._count = len(rows)
        self._rows = rows if len(rows) else np.zeros(_FIRST_ROOM, FAILED)

    def drop(self, topic: int, group: int | None = None) -> None:
        """Forget the failures of a topic, or of a group of it."""
        rows = self.rows
        mine = rows["topic"] == topic
        if group is not None:
            mine &= rows["group"] == group
        if np.count_nonzero(mine):
            self.keep(~mine)

    def saved(self) -> dict[str, Any]:
        """Its members of a checkpoint."""
        return {"failures": self.rows.tobytes(), "failure_texts": list(self._texts)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Fill the empty table from a checkpoint; those of earlier releases have none."""
        if "failures" not in saved:
            return
        self._rows = np.frombuffer(saved["failures"], FAILED).copy()
        self._count = len(self._rows)
        self._texts = list(saved["failure_texts"])
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._text_bytes = sum(len(text.encode()) for text in self._texts)
