"""Seals of state entries: a checksum of 32 bits in each entry, over its other 28 bytes.

A seal is `(w0 * K0 + w1 * K1 + w2 * K2 + w3 * K3) mod 2**64 >> 32` over the entry's four u64 words,
with zero in place of the seal. An entry of zeros has seal zero, so the entries of a hole are valid.
The seal detects every change of one or two bits (a test tries them all), and misses any other
change with a probability of 2**-32.

Why each entry has a seal, instead of each page a checksum: pages are written at any time between
two checkpoints, and after a power failure some sectors of a page may be old. Its checksum would
then be wrong without corruption, so a replay that stores entries in the page would have to ignore
it, and the page's other entries would go unverified. A sector has sixteen whole entries, so each
entry is old or new, and its seal is valid in either case.
"""

from __future__ import annotations

from operator import mul
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, STATE_VALUES, StateArray

_WORDS: Final = STATE_ENTRY_SIZE // 8
_FACTORS: Final = np.array(
    [0x8FB5262C_FFFFFFFF, 0x6D14475B_349AAE91, 0x0E5E18BA_F320CD57, 0xDEB8FC4C_7B297D0B], np.uint64
)
_LOWER: Final = np.uint64((1 << 32) - 1)
_ONE: Final = Struct(f"<{_WORDS}Q")
_ONE_FACTORS: Final = _FACTORS.tolist()
_WORD: Final = (1 << 64) - 1
assert int(_FACTORS[0]) & 0xFFFFFFFF == 0xFFFFFFFF, "the seal's own factor is minus one"

# The seal is the upper half of w0, so it adds `seal * (K0 mod 2**32)`, which is minus the seal, to
# the upper half of the sum: that is zero exactly when the seal is right.


def _words(entries: StateArray) -> npt.NDArray[np.uint64]:
    return entries.view(np.uint64).reshape(-1, _WORDS)


def sealed(entries: StateArray) -> StateArray:
    """A copy of entries with their seals; present seals are ignored."""
    if len(entries) == 1:
        return _sealed_one(entries)
    # Words, not entries: numpy copies structured columns field by field.
    words = _words(np.ascontiguousarray(entries)).copy()
    first = words[:, 0]
    first &= _LOWER
    first |= words @ _FACTORS & ~_LOWER
    return words.reshape(-1).view(STATE_ENTRY)


def _sealed_one(entries: StateArray) -> StateArray:
    """The same for one entry, the usual case, at an eighth of the cost."""
    words = _ONE.unpack(entries.tobytes())
    lower = words[0] & 0xFFFFFFFF
    total = sum(map(mul, (lower, *words[1:]), _ONE_FACTORS))
    return np.frombuffer(_ONE.pack(lower | total & 0xFFFFFFFF_00000000, *words[1:]), STATE_ENTRY)


def sealed_values(
    state: int, cause: int, attempts: int, lease: int, time: int, forward: int = 0
) -> bytes:
    """The bytes of one entry with its seal."""
    first = state | cause << 8 | attempts << 16
    k0, k1, k2, k3 = _ONE_FACTORS
    total = first * k0 + lease * k1 + (time & _WORD) * k2 + (forward & _WORD) * k3
    return STATE_VALUES.pack(state, cause, attempts, total >> 32 & 0xFFFFFFFF, lease, time, forward)


def broken_one(raw: Any, at: int) -> bool:
    """Whether the entry that begins at byte `at` has a wrong seal."""
    a, b, c, d = _ONE.unpack_from(raw, at)
    k0, k1, k2, k3 = _ONE_FACTORS
    total: int = a * k0 + b * k1 + c * k2 + d * k3
    return total & _WORD > 0xFFFFFFFF


def broken(entries: StateArray) -> npt.NDArray[np.bool_]:
    """Mask of entries with a wrong seal. `entries` must be contiguous."""
    out: npt.NDArray[np.bool_] = _words(entries) @ _FACTORS > _LOWER
    return out


assert STATE_ENTRY.fields is not None
assert STATE_ENTRY.fields["seal"][1] == 4, "the seal is the upper half of the first word"
