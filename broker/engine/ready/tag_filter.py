"""Tag filters: which messages a consumer wants, by masks in the rows and then by stored tags.

The mask never misses a message with the tags. It may match others, which the stored tags rule out;
the caller reads those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.errors import BadRequestError
from delaylog.contract.calls.shapes import TAG_MODES
from delaylog.contract.message_fields import TAG_BYTES_MAX, TAGS_MAX
from delaylog.storage.columns import Mask
from delaylog.storage.messages.rows import tag_bits


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Messages with any, or all, of some tags. Equal filters are equal and hash alike."""

    tags: frozenset[bytes]
    mode: str = "any"
    masks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """One of these must be contained in a message's mask."""

    def __post_init__(self) -> None:
        assert self.tags, "a filter has tags"
        assert self.mode in TAG_MODES, "the mode was checked with the request"
        masks = {tag_bits(tag) for tag in self.tags}
        if self.mode == "all":
            joined = 0
            for mask in masks:
                joined |= mask
            masks = {joined}
        object.__setattr__(self, "masks", tuple(sorted(masks)))

    @classmethod
    def parse(cls, tags: Sequence[str] | None, mode: str = "any") -> TagFilter | None:
        """The filter of a request; None if it has no tags."""
        if not tags:
            return None
        if len(tags) > TAGS_MAX:
            raise BadRequestError(_LIMITS, field="tags")
        return cls(frozenset(map(_tag, tags)), mode)

    def mask_match(self, tag_masks: npt.NDArray[np.uint64]) -> Mask:
        """Rows that may match, by the masks of their tags."""
        first, *others = map(np.uint64, self.masks)
        found: Mask = (tag_masks & first) == first
        for mask in others:
            found |= (tag_masks & mask) == mask
        return found

    def exact_match(self, tags_blobs: Sequence[bytes]) -> Mask:
        """Rows that match, by their stored tags (joined by newlines).

        For rows that the mask has matched. Many messages have the same tags, so each distinct text
        is split once.
        """
        verdicts = {blob: self._matches(blob.split(b"\n")) for blob in set(tags_blobs)}
        return np.fromiter(map(verdicts.__getitem__, tags_blobs), np.bool_, len(tags_blobs))

    def _matches(self, tags: Iterable[bytes]) -> bool:
        if self.mode == "all":
            return self.tags.issubset(tags)
        return not self.tags.isdisjoint(tags)


_LIMITS: Final = f"at most {TAGS_MAX} tags of 1 to {TAG_BYTES_MAX} bytes"


def _tag(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise BadRequestError("tags must be UTF-8", field="tags") from None
    if not 1 <= len(raw) <= TAG_BYTES_MAX:
        raise BadRequestError(_LIMITS, field="tags")
    if b"\n" in raw:
        raise BadRequestError("a tag must not hold a newline", field="tags")
    return raw
