"""Hashes of ids: keyed, 64 bits each, computed for a whole column in a few passes of numpy.

Each log has a key of 16 random bytes in its first LEVEL frame; without the key nobody can choose
ids that collide.

Layout of the keyed hash, part of the log's format. The id is padded with zeros to 32-bit words
w[0..m), little-endian. Two lanes each have 64-bit numbers k[0..], drawn from the key by SHAKE-256:

    lane = (k[0] + k[1] * size + sum(k[2 + i] * w[i])) mod 2**64
    hash = mix(upper 32 bits of lane 0 << 32 | upper 32 bits of lane 1), 0 becomes 1

Each lane is strongly universal (multilinear hashing), so two ids chosen without knowledge of the
key collide with a probability of 2**-64. `mix` is a bijection; it spreads ids that differ in their
last digits over all bits. Ids longer than 256 bytes use blake2b with the key. 0 means "no id".
"""

from __future__ import annotations

import struct
from hashlib import blake2b, shake_256
from operator import mul
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.storage.messages.batch import TextColumn, column_max

Hashes: TypeAlias = npt.NDArray[np.uint64]

_WORD: Final = 4
_WORDS_MAX: Final = 64
_SINGLY_MAX: Final = 6
"""Up to this number of ids are hashed one by one: numpy's fixed cost is about 15 us a column."""
_WORDS_FEW: Final = 8
"""Ids of at most this number of words are hashed together, whatever their sizes."""
_CLASSES: Final = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, _WORDS_MAX])
"""Sizes in words. Ids padded with zeros to the same one of these are hashed together."""
_OFFSETS: Final = np.arange(_WORDS_MAX) * _WORD
_LEFT: Final = np.clip(np.arange(_WORDS_MAX * _WORD + 1)[:, None] - _OFFSETS, 0, _WORD)
_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)[_LEFT]
"""Which bits of each word belong to an id, by its size."""
_ALL: Final = (1 << 64) - 1
_HALF: Final = (1 << 32) - 1
_MIX_1: Final = 0xFF51AFD7ED558CCD
_MIX_2: Final = 0xC4CEB9FE1A85EC53
_UPPER: Final = np.uint64(0xFFFFFFFF00000000)
_33: Final = np.uint64(33)
_32: Final = np.uint64(32)
_STRUCTS: Final = [struct.Struct(f"<{words}I") for words in range(_WORDS_MAX + 1)]
_LANE_BITS: Final = 128
"""Bits for a lane's sum, of 64 products of 96 bits each, before it is cut to 64 bits."""


class IdHash:
    """The hash of one log."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        numbers = 2 + _WORDS_MAX
        raw = shake_256(b"delaylog ids\0" + key).digest(2 * numbers * 8)
        lanes = np.frombuffer(raw, "<u8").reshape(2, numbers).astype(np.uint64)
        self._starts, self._sizes = lanes[:, 0].copy(), lanes[:, 1].copy()
        self._words = np.ascontiguousarray(lanes[:, 2:].T)
        # Both lanes of a single id are summed in one Python integer.
        self._pairs = [low | high << _LANE_BITS for high, low in lanes.T.tolist()]

    def one(self, value: bytes) -> int:
        """The hash of an id that is not empty."""
        size = len(value)
        words = (size + _WORD - 1) // _WORD
        if words > _WORDS_MAX:
            digest = blake2b(value, digest_size=8, key=self.key).digest()
            return int.from_bytes(digest, "little") or 1
        numbers = _STRUCTS[words].unpack(value.ljust(words * _WORD, b"\0"))
        start, by_size, *keys = self._pairs[: 2 + words]
        lanes = start + by_size * size + sum(map(mul, numbers, keys))
        mixed = (lanes >> _LANE_BITS + 32 & _HALF) << 32 | lanes >> 32 & _HALF
        mixed = (mixed ^ mixed >> 33) * _MIX_1 & _ALL
        mixed = (mixed ^ mixed >> 33) * _MIX_2 & _ALL
        return mixed ^ mixed >> 33 or 1

    def column(self, column: TextColumn, n: int) -> Hashes:
        """Hashes of a column of ids, 0 where an id is empty."""
        if n <= _SINGLY_MAX or column_max(column.size) > _WORDS_MAX * _WORD:
            one = self.one
            values = column.values(n)
            return np.array([one(value) if value else 0 for value in values], np.uint64)
        sizes = column.sizes(n)
        longest, shortest = int(sizes.max()), int(sizes.min())
        if longest == shortest:
            return self._mixed(_words_of_one_size(column, n, longest), sizes)
        words = _words(column)
        starts = np.cumsum(sizes) - sizes
        counts = (sizes + _WORD - 1) // _WORD
        most = int(counts.max())
        if most <= _WORDS_FEW or most == int(counts.min()):
            hashes = self._alike(words, starts, sizes, most)
        else:
            hashes = np.empty(n, np.uint64)
            classes = np.searchsorted(_CLASSES, counts)
            for number in np.flatnonzero(np.bincount(classes)).tolist():
                at = np.flatnonzero(classes == number)
                hashes[at] = self._alike(words, starts[at], sizes[at], int(_CLASSES[number]))
        if shortest == 0:
            hashes[sizes == 0] = 0
        return hashes

    def _alike(
        self,
        words: npt.NDArray[np.uint32],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        count: int,
    ) -> Hashes:
        """Hashes of ids that have at most `count` words each."""
        taken = words[starts[:, None] + _OFFSETS[:count]] & _MASKS[sizes, :count]
        return self._mixed(taken, sizes)

    def _mixed(self, taken: npt.NDArray[np.uint32], sizes: npt.NDArray[np.int64]) -> Hashes:
        """Hashes of ids given as their words, one row for each id, and their sizes."""
        lanes = taken.astype(np.uint64) @ self._words[: taken.shape[1]]
        lanes += sizes.astype(np.uint64)[:, None] * self._sizes + self._starts
        mixed: Hashes = (lanes[:, 0] & _UPPER) | (lanes[:, 1] >> _32)
        mixed = (mixed ^ (mixed >> _33)) * np.uint64(_MIX_1)
        mixed = (mixed ^ (mixed >> _33)) * np.uint64(_MIX_2)
        mixed ^= mixed >> _33
        np.maximum(mixed, 1, out=mixed)
        return mixed


def _words_of_one_size(column: TextColumn, n: int, size: int) -> npt.NDArray[np.uint32]:
    """The words of ids that all have one size, padded with zeros, one row for each id."""
    padded = np.zeros((n, -(-size // _WORD) * _WORD), np.uint8)
    padded[:, :size] = np.frombuffer(column.block, np.uint8).reshape(n, size)
    return padded.view("<u4")


def _words(column: TextColumn) -> npt.NDArray[np.uint32]:
    """The word that begins at each byte of a block."""
    raw = bytes(column.block) + bytes(_WORDS_MAX * _WORD)
    return np.ndarray((len(raw) - _WORD + 1,), "<u4", raw, strides=(1,))
