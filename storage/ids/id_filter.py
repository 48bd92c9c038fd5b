"""A filter of the ids stored on disk: "no" is certain, "perhaps" costs a look-up on disk.

This is a blocked Bloom filter of 64-bit words, with two bytes of memory for each id of its
capacity. A key sets five bits in one word. The upper half of a key chooses the word, so keys in
ascending order touch the words in ascending order; the lowest twelve bits choose the five bits. A
filter filled to its capacity passes one absent key in three hundred. Keys cannot be removed.

One thread may add while another one looks up: each word is written atomically, and until their add
is complete, look-ups find the keys in memory (id_index.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.ids.recent_ids import FEW_KEYS_MAX
from delaylog.storage.layout import Int64Array
from delaylog.storage.runs.key_run import KeyArray

BYTES_AN_ID: Final = 2
COUNT_MIN: Final = 32_768
"""Least capacity of a filter."""
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
    """A filter for `count` keys, or COUNT_MIN. With more keys it passes more absent ones."""

    def __init__(self, count: int) -> None:
        self.capacity = max(count, COUNT_MIN)
        self.count = 0
        """Keys that were added."""
        self._words = np.zeros(self.capacity * BYTES_AN_ID // 8, np.uint64)
        self._words_singly = self._words.data

    @property
    def size_bytes(self) -> int:
        """Memory of the filter."""
        return self._words.nbytes

    def _places(self, keys: KeyArray) -> Int64Array:
        return ((keys >> _32) * np.uint64(len(self._words)) >> _32).view(np.int64)

    def add(self, keys: KeyArray) -> None:
        """Let these keys pass from now on. Ascending keys are added fastest."""
        np.bitwise_or.at(self._words, self._places(keys), _PATTERN[(keys & _LOW).view(np.int64)])
        self.count += len(keys)

    def passing(self, keys: KeyArray) -> Int64Array:
        """The places of the keys that may be stored, ascending."""
        if len(keys) <= FEW_KEYS_MAX:
            return np.array(self.passing_few(keys.tolist()), np.int64)
        patterns = _PATTERN[(keys & _LOW).view(np.int64)]
        return np.flatnonzero(self._words[self._places(keys)] & patterns == patterns)

    def passing_few(self, keys: Sequence[int]) -> list[int]:
        """The same for a few keys."""
        words, size, pattern = self._words_singly, len(self._words), _PATTERN_SINGLY
        return [
            place
            for place, key in enumerate(keys)
            if not pattern[key & _PATTERNS - 1] & ~words[(key >> 32) * size >> 32]
        ]
