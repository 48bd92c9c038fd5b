"""Index keys of ordering keys and tags: 64-bit numbers that also depend on the topic.

The key of an entry mixes the topic with the hash that rows have (`hash_u64`), so that an index of
all topics is one sorted list. A tag and an ordering key with the same text have different keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import every
from delaylog.storage.ids.id_keys import keys_of, keys_of_few
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.rows import hash_u64
from delaylog.storage.runs.key_run import KeyArray
from delaylog.storage.runs.run_store import Entries

_TAG: Final = 0xA076_1D64_78BD_642F
"""Keeps tags apart from ordering keys."""
_HASH_BYTES: Final = 8


def key_of_key(topic: int, text: bytes) -> int:
    """The index key of an ordering key."""
    return _one(topic, hash_u64(text))


def key_of_tag(topic: int, text: bytes) -> int:
    """The index key of a tag."""
    return _one(topic, hash_u64(text) ^ _TAG)


def _one(topic: int, hashed: int) -> int:
    return int(keys_of(topic, np.array([hashed], np.uint64))[0])


@lru_cache(maxsize=8_192)
def _tag_hashes(joined: bytes) -> tuple[int, ...]:
    """Hashes of the tags of a message, which are joined by newlines."""
    return tuple(hash_u64(tag) ^ _TAG for tag in joined.split(b"\n") if tag)


@lru_cache(maxsize=8_192)
def _packed_hashes(joined: bytes) -> bytes:
    """The same as the bytes of a column."""
    return np.array(_tag_hashes(joined), np.uint64).tobytes()


def entries_of_few(
    topic: int, key_hash: Sequence[int], tags: Sequence[bytes], refs: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Entries for a few rows, without the fixed cost of numpy. `tags` may be empty for all."""
    hashes = [hashed for hashed in key_hash if hashed]
    owners = [ref for hashed, ref in zip(key_hash, refs, strict=False) if hashed]
    for joined, ref in zip(tags, refs, strict=False):
        found = _tag_hashes(joined)
        hashes += found
        owners += [ref] * len(found)
    return keys_of_few(topic, hashes), owners


def entries_of_keys(topic: int, key_hash: KeyArray, refs: Int64Array) -> Entries:
    """Entries for rows by their hashes of keys, 0 = no key."""
    if not every(key_hash):
        there = np.flatnonzero(key_hash)
        key_hash, refs = key_hash[there], refs[there]
    return keys_of(topic, key_hash.astype(np.uint64)), refs.astype(np.int64)


def entries_of_tags(topic: int, tags: Sequence[bytes], refs: Int64Array) -> Entries:
    """Entries for rows by their tags, joined by newlines; b"" = no tags."""
    each = list(map(_packed_hashes, tags))
    hashes = np.frombuffer(b"".join(each), np.uint64)
    owners = np.repeat(refs, np.fromiter(map(len, each), np.int64, len(each)) // _HASH_BYTES)
    return keys_of(topic, hashes), owners.astype(np.int64)
