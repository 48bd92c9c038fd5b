"""Idempotent producers: what a repeated (producer, sequence) is answered.

Per producer the last 64 sequences are kept, in any order, with what is needed to rebuild the
first answer: refs and due times of a few rows as they are, of many as the leader time and the
first row number per hour (the repeated body gives the rest). Kept ten minutes, at most a million
producers, oldest first.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.errors import ConflictError
from delaylog.storage.layout import Int64Array

WINDOW: Final = 64
KEEP_MS: Final = 600_000
PRODUCERS_MAX: Final = 1_000_000


@dataclass(slots=True)
class FirstAnswer:
    """The answer to the first send of a sequence, packed."""

    rows: int
    packed: bytes
    results: int | bytes
    position: int

    def unpack(self) -> tuple[Int64Array, Int64Array, Int64Array | int]:
        """(refs, due times, results)."""
        columns = np.frombuffer(zlib.decompress(self.packed), "<i8").reshape(2, self.rows)
        columns = np.cumsum(columns, axis=1)
        results: Int64Array | int = (
            self.results
            if isinstance(self.results, int)
            else np.frombuffer(self.results, np.uint8).astype(np.int64)
        )
        return columns[0], columns[1], results


def pack_answer(
    refs: Int64Array, due: Int64Array, results: Int64Array | int, position: int
) -> FirstAnswer:
    """Pack an answer: neighbouring refs and due times differ little, so deltas squeeze well."""
    columns = np.stack([refs, due])
    deltas = np.diff(columns, axis=1, prepend=0)
    packed = zlib.compress(deltas.tobytes(), 1)
    kept = results if isinstance(results, int) else results.astype(np.uint8).tobytes()
    return FirstAnswer(len(refs), packed, kept, position)


@dataclass(slots=True)
class _Producer:
    used_ms: int
    top: int
    answers: dict[int, FirstAnswer]


class ProducerTable:
    """Producers by name, least recently used first."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: OrderedDict[str, _Producer] = OrderedDict()
        self._producers_max = producers_max
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._producers)

    def seen(self, producer: str, sequence: int, rows: int) -> FirstAnswer | None:
        """The first answer, or None for a new sequence. ConflictError below the window."""
        known = self._producers.get(producer)
        if known is None:
            return None
        answer = known.answers.get(sequence)
        if answer is not None:
            if answer.rows != rows:
                raise ConflictError(
                    f"sequence {sequence} of this producer was sent with {answer.rows} "
                    f"rows, not {rows}",
                    field="sequence",
                )
            return answer
        if sequence <= known.top - WINDOW:
            raise ConflictError(
                f"sequence {sequence} lies below the window of this producer, whose "
                f"newest is {known.top}",
                field="sequence",
            )
        return None

    def remember(self, producer: str, sequence: int, answer: FirstAnswer, now_ms: int) -> None:
        """Keep the first answer of a sequence."""
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer(now_ms, sequence, {})
        known.used_ms = now_ms
        self._producers.move_to_end(producer)
        known.top = max(known.top, sequence)
        known.answers[sequence] = answer
        for old in [s for s in known.answers if s <= known.top - WINDOW]:
            del known.answers[old]
        while len(self._producers) > self._producers_max:
            self._producers.popitem(last=False)
            self.dropped += 1

    def expire(self, now_ms: int) -> None:
        """Forget producers that were silent for ten minutes."""
        while self._producers:
            name, known = next(iter(self._producers.items()))
            if known.used_ms + KEEP_MS > now_ms:
                break
            del self._producers[name]

    def set_back(self, now_ms: int) -> None:
        """The clock went back: what was used later than now was used just now."""
        for known in self._producers.values():
            known.used_ms = min(known.used_ms, now_ms)

    def jump_ahead(self, by_ms: int) -> None:
        """The clock was set ahead: what is left of the ten minutes stays."""
        for known in self._producers.values():
            known.used_ms += by_ms

    def snapshot(self) -> list[Any]:
        """For a checkpoint."""
        return [
            [
                name,
                known.used_ms,
                known.top,
                [[s, a.rows, a.packed, a.results, a.position] for s, a in known.answers.items()],
            ]
            for name, known in self._producers.items()
        ]

    def restore(self, saved: list[Any]) -> None:
        """Fill the table from a checkpoint."""
        for name, used_ms, top, answers in saved:
            self._producers[name] = _Producer(
                used_ms, top, {s: FirstAnswer(*rest) for s, *rest in answers}
            )
