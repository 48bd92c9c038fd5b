"""Backoffs of many messages at once; `own_backoff` declares their bytes.

They are in a module apart, because clients encode a backoff without NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.contract.own_backoff import (
    ARRAY,
    KINDS,
    NOT_SAID,
    OWN_BACKOFF_SIZE,
    PARTS,
    encode_own_backoff,
)
from delaylog.storage.layout import Int64Array

OWN_BACKOFF: Final = np.dtype(
    [
        ("array", "u1"),
        ("first_kind", "u1"),
        ("first_ms", ">i8"),
        ("max_kind", "u1"),
        ("max_ms", ">i8"),
        ("factor_kind", "u1"),
        ("factor", ">f8"),
        ("jitter_kind", "u1"),
        ("jitter", ">f8"),
    ]
)
assert OWN_BACKOFF.itemsize == OWN_BACKOFF_SIZE
_KIND_NAMES: Final = ("array", *(f"{name.removesuffix('_ms')}_kind" for name in PARTS))
assert tuple(np.frombuffer(encode_own_backoff({}), OWN_BACKOFF)[0][list(_KIND_NAMES)]) == KINDS


def own_backoff_entries(n: int, said: Mapping[str, Any]) -> npt.NDArray[np.void]:
    """n backoffs. Each part is one value for all or an array of n, with NOT_SAID where absent."""
    entries = np.zeros(n, OWN_BACKOFF)
    for name, kind in zip(_KIND_NAMES, KINDS, strict=True):
        entries[name] = kind
    for name in PARTS:
        entries[name] = said.get(name, NOT_SAID)
    return entries


def have_own_backoff(
    block: bytes | memoryview, starts: Int64Array, sizes: Int64Array
) -> npt.NDArray[np.bool_]:
    """Which of the headers at these places of a block begin with a backoff."""
    out = np.zeros(len(starts), np.bool_)
    at = np.flatnonzero(sizes)
    out[at] = np.frombuffer(block, np.uint8)[starts[at]] == ARRAY
    return out


def own_backoffs(block: bytes | memoryview, starts: Int64Array) -> npt.NDArray[np.void]:
    """The backoffs at these places of a block."""
    raw = np.frombuffer(block, np.uint8)
    picked = raw[starts[:, None] + np.arange(OWN_BACKOFF_SIZE)]
    return np.ascontiguousarray(picked).view(OWN_BACKOFF)[:, 0]
