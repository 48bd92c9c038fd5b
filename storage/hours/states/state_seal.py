"""Seals of state entries: 32 bits in each entry that follow from its other 28 bytes.

A seal is `(w0 * K0 + w1 * K1 + w2 * K2 + w3 * K3) mod 2**64 >> 32` over the entry's four u64 words
with the seal itself taken as zero. An entry of zeros has seal zero, so a hole is sealed without
ever having been written. Any one or two flipped bits break it (a test tries them all), others
pass with one chance in 2**32.

Why a seal an entry, and not a checksum a page: pages are written whenever they like between two
checkpoints, and a power cut keeps any sectors of them. A page that a replay touches could not be
told from a rotten one, and the rows beside those that the replay stores would be believed
unseen. Sixteen entries make a sector, so an entry is old or new and its seal always holds.
"""

from __future__ import annotations

from operator import mul
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, StateArray

_WORDS: Final = STATE_ENTRY_SIZE // 8
_FACTORS: Final = np.array(
    [0x8FB5262C_FFFFFFFF, 0x6D14475B_349AAE91, 0x0E5E18BA_F320CD57, 0xDEB8FC4C_7B297D0B], np.uint64
)
_LOWER: Final = np.uint64((1 << 32) - 1)
_ONE: Final = Struct(f"<{_WORDS}Q")
_ONE_FACTORS: Final = _FACTORS.tolist()
assert int(_FACTORS[0]) & 0xFFFFFFFF == 0xFFFFFFFF, "the seal counts as minus itself"

# The seal is the upper half of w0, so it adds `seal * (K0 mod 2**32)`, which is minus the seal, to
# the upper half of the sum: that is zero exactly when the seal is right.


def _words(entries: StateArray) -> npt.NDArray[np.uint64]:
    return entries.view(np.uint64).reshape(-1, _WORDS)


def sealed(entries: StateArray) -> StateArray:
    """A copy of entries with their seals; what stood there is not looked at."""
    if len(entries) == 1:
        return _sealed_one(entries)
    # Words, not entries: numpy copies structured columns field by field.
    words = _words(np.ascontiguousarray(entries)).copy()
    first = words[:, 0]
    first &= _LOWER
    first |= words @ _FACTORS & ~_LOWER
    return words.reshape(-1).view(STATE_ENTRY)


def _sealed_one(entries: StateArray) -> StateArray:
    """The same for one entry, most often one for all: an eighth of the price."""
    words = _ONE.unpack(entries.tobytes())
    lower = words[0] & 0xFFFFFFFF
    total = sum(map(mul, (lower, *words[1:]), _ONE_FACTORS))
    return np.frombuffer(_ONE.pack(lower | total & 0xFFFFFFFF_00000000, *words[1:]), STATE_ENTRY)


def broken(entries: StateArray) -> npt.NDArray[np.bool_]:
    """Mask of entries whose seal does not fit. `entries` is contiguous."""
    out: npt.NDArray[np.bool_] = _words(entries) @ _FACTORS > _LOWER
    return out


assert STATE_ENTRY.fields is not None
assert STATE_ENTRY.fields["seal"][1] == 4, "the seal is the upper half of the first word"
