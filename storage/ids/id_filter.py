"""A filter of the ids that are stored on disk: "no" is certain, "perhaps" costs a look-up there.

A blocked Bloom filter of 64-bit words, two bytes for each id that it is made for: a key has five
bits in one word. The upper half of a key chooses the word, so keys in their order touch the words
in theirs; the lowest twelve bits choose the five. One key in three hundred that is not there
passes a filter that holds what it was made for. Keys cannot be taken out.

One thread adds while another one asks: a word is written at once, and who asks finds keys that are
being added elsewhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.ids.recent_ids import FEW, KeyArray
from delaylog.storage.layout import Int64Array

BYTES_AN_ID: Final = 2
COUNT_MIN: Final = 32_768
"""Fewer ids take as much memory as these."""
_BITS: Final = 5
_PATTERNS: Final = 4_096
_LOW: Final = np.uint64(_PATTERNS - 1)
_32: Final = np.uint64(32)


def _patterns() -> npt.NDArray[np.uint64]:
    random = np.random.default_rng(1)
    bits = random.permuted(np.tile(np.arange(64, dtype=np.uint64), (_PATTERNS, 1)), axis=1)
    patterns: npt.NDArray[np.uint64] = np.bitwise_or.reduce(np.uint64(1) << bits[:, :_BITS], axis=1)
    return patterns


_PATTERN: Final = _patterns()
_PATTERN_SINGLY: Final = _PATTERN.tolist()


class IdFilter:
    """Made for `capacity` keys at least `count`; it may be given more, and lets more pass then."""

    def __init__(self, count: int) -> None:
        self.capacity = max(count, COUNT_MIN)
        self.count = 0
        """Keys that were added."""
        self._words = np.zeros(self.capacity * BYTES_AN_ID // 8, np.uint64)
        self._words_singly = self._words.data

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return self._words.nbytes

    def _places(self, keys: KeyArray) -> Int64Array:
        return ((keys >> _32) * np.uint64(len(self._words)) >> _32).view(np.int64)

    def add(self, keys: KeyArray) -> None:
        """Let these pass from now on. Keys in their order are added fastest."""
        np.bitwise_or.at(self._words, self._places(keys), _PATTERN[(keys & _LOW).view(np.int64)])
        self.count += len(keys)

    def passing(self, keys: KeyArray) -> Int64Array:
        """The places of the keys that may be there, ascending."""
        if len(keys) <= FEW:
            words, size, pattern = self._words_singly, len(self._words), _PATTERN_SINGLY
            passed = [
                place
                for place, key in enumerate(keys.tolist())
                if not pattern[key & _PATTERNS - 1] & ~words[(key >> 32) * size >> 32]
            ]
            return np.array(passed, np.int64)
        patterns = _PATTERN[(keys & _LOW).view(np.int64)]
        return np.flatnonzero(self._words[self._places(keys)] & patterns == patterns)
