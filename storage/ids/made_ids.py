"""Columns of ids that clients send: which of them the broker made, and the refs behind those.

The broker's own ids are refs in hexadecimal (`ref_to_id` in `storage/layout.py`); all others were
chosen by clients.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import Int64Array

_HEX: Final = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_ID_SIZE: Final = 17
_TILDE: Final = ord("~")


def ids_to_refs(
    block: bytes | memoryview, sizes: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """The refs of a column of ids (0 where an id is not a ref), and which ids clients chose."""
    raw = np.frombuffer(block, np.uint8)
    refs = np.zeros(len(sizes), np.int64)
    starts = np.cumsum(sizes) - sizes
    chosen = sizes > 0
    first = np.zeros(len(sizes), np.uint8)
    first[chosen] = raw[starts[chosen]]
    ours = first == _TILDE
    chosen &= ~ours
    at = np.flatnonzero(ours & (sizes == _ID_SIZE))
    if len(at):
        digits = _HEX[raw[starts[at, None] + np.arange(1, _ID_SIZE)]]
        value = np.zeros(len(at), np.uint64)
        for k in range(_ID_SIZE - 1):
            value = (value << np.uint64(4)) | digits[:, k]
        good = (digits.max(axis=1) < 16) & (digits[:, 0] < 8)
        refs[at[good]] = value[good].astype(np.int64)
    return refs, chosen
