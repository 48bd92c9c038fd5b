"""One row as plain integers.

Up to some sixteen messages, numpy's fixed costs are higher than those of a loop: one field of a
structured scalar takes longer to read than all fields of a row by `struct`.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.storage.layout import INDEX_ENTRY


class RowValues(NamedTuple):
    """The fields of an INDEX_ENTRY, as `INDEX_ROW` unpacks them."""

    offset: int
    size: int
    local_index: int
    global_index: int
    pre_global_index: int
    deliver_at: int
    expires_at: int
    sent_at: int
    sent_position: int
    tag_mask: int
    key_hash: int
    id_hash: int
    topic: int
    group: int
    priority: int
    epoch_tag: int
    max_retry: int
    id_size: int
    key_size: int
    tags_size: int
    headers_size: int
    origin: int


assert INDEX_ENTRY.names == RowValues._fields
