"""Keys of ids, and which of several entries of a key counts: the newest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.ids.recent_ids import FEW_KEYS_MAX, RecentIds
from delaylog.storage.layout import Int64Array
from delaylog.storage.runs.key_run import KeyArray

TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_ALL: Final = (1 << 64) - 1
_ONE: Final = np.uint64(1)


def keys_of(topics: npt.NDArray[np.uint32] | int, hashes: npt.NDArray[np.uint64]) -> KeyArray:
    """Topic and id hash mixed into one key, never 0: one id has different keys in two topics."""
    if isinstance(topics, int):
        if len(hashes) <= FEW_KEYS_MAX:
            return np.array(keys_of_few(topics, hashes.tolist()), np.uint64)
        mixed: KeyArray = hashes ^ np.uint64(topics * TOPIC_FACTOR & _ALL)
    else:
        mixed = hashes ^ topics.astype(np.uint64) * np.uint64(TOPIC_FACTOR)
    np.maximum(mixed, _ONE, out=mixed)
    return mixed


def keys_of_few(topic: int, hashes: Sequence[int]) -> list[int]:
    """The same for a few ids of one topic."""
    salt = topic * TOPIC_FACTOR & _ALL
    return [each ^ salt or 1 for each in hashes]


def newest(tables: Sequence[RecentIds]) -> tuple[KeyArray, Int64Array]:
    """All ids of some tables, sorted by key. If several tables have a key, the last one counts."""
    if len(tables) == 1:
        return in_key_order(*tables[0].columns())
    joined = RecentIds()
    for table in tables:
        joined.put(*table.columns())
    return in_key_order(*joined.columns())


def in_key_order(keys: KeyArray, refs: Int64Array) -> tuple[KeyArray, Int64Array]:
    """Ids sorted by key."""
    order = np.argsort(keys)
    return keys[order], refs[order]


def lasts(keys: KeyArray) -> npt.NDArray[np.bool_]:
    """A mask of ascending keys: True for the last one of each group of equal keys."""
    lasts = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=lasts[:-1])
    return lasts


def newest_of_each(
    keys: KeyArray, refs: Int64Array, *, keep_forgotten: bool
) -> tuple[KeyArray, Int64Array]:
    """The newest entry of each key, of those of neighbouring runs, oldest first.

    Without `keep_forgotten`, forgotten ids (ref 0) are dropped.
    """
    order = np.argsort(keys, kind="stable")
    keys, refs = keys[order], refs[order]
    kept = lasts(keys)
    if not keep_forgotten:
        kept &= refs != 0
    return keys[kept], refs[kept]
