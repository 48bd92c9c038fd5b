"""Tag and key of a filter: by hashes over whole columns first, then by the stored texts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from delaylog.storage.columns import Mask
from delaylog.storage.layout import RowArray
from delaylog.storage.rows import hash_u64, tag_bits


@dataclass(frozen=True, slots=True)
class TextFilter:
    """A tag and a key that a message has to have; None = any, an empty key = none."""

    tag: bytes | None
    key: bytes | None
    tag_bits: int = field(init=False, repr=False, compare=False)
    """The tag's bits in masks; 0 without one."""
    _key_hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag_bits", tag_bits(self.tag) if self.tag else 0)
        object.__setattr__(self, "_key_hash", hash_u64(self.key) if self.key else 0)

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing."""
        return self.tag is None and self.key is None

    def may_match(self, rows: RowArray) -> Mask:
        """Rows that can match: their hashes are those of the texts, or of others like them."""
        bits = np.uint64(self.tag_bits)
        mask: Mask = (rows["tag_mask"] & bits) == bits
        if self.key is not None:
            mask &= rows["key_hash"] == np.uint64(self._key_hash)
        return mask

    def matches(self, key: bytes, tags: bytes) -> bool:
        """Whether the stored texts are those that are asked for; tags stand by newlines."""
        return (self.key is None or key == self.key) and (
            self.tag is None or self.tag in tags.split(b"\n")
        )
