"""The parts of one open transaction: a growing array, and an index by the identity of a part.

A part is identified by (producer, part, attempt, number). Ten million rows are some thousand parts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from delaylog.storage.log.transaction_frames import PART, PartArray, PartIndexes, StagedPart

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
