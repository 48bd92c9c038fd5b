"""Which refs may be handed out: refs are hints, so their states and rows are checked.

A message past its ttl that is still in a queue is ended here: `end_due` may be busy with others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.deliver.expiry import end_by_ttl
from delaylog.broker.engine.model import Part, Topic
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.gather import gather, scatter_back
from delaylog.storage.columns.questions import alike, every, rising, some
from delaylog.storage.columns.whole_rows import put_rows, take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_NONE,
    Int64Array,
    RowArray,
)
from delaylog.storage.messages.rows import heads_of

WHOLE_BYTES_MAX: Final = 1 << 20
"""Records up to this size in all are read whole to check their tags."""


def deliverable(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, now_ms: int
) -> tuple[Part, int]:
    """Those of the refs that may be handed out, each once; ends those past their ttl.

    Also returns the number of stale refs: repeated ones, and those that had ended or moved.
    """
    asked = len(refs)
    if len(refs) > 1 and not rising(refs):
        _, first = np.unique(refs, return_index=True)
        if len(first) != len(refs):
            refs = refs[np.sort(first)]
    known = state.hours.known(refs)
    if not every(known):
        refs = refs[known]
    entries = state.hours.get_states(refs, group.number)
    free = entries["state"] == STATE_NONE
    if not every(free):
        refs, entries = refs[free], take_rows(entries, free)
    if len(refs) == 0:
        return Part(refs, np.zeros(0, INDEX_ENTRY), entries), asked
    part = Part(refs, _rows(state, topic, refs, now_ms), entries)
    if topic.number in state.marks.special:
        free = group.free(part.rows, entries)
        if not every(free):
            part = part.take(free)
    stale = asked - len(part.refs)
    over = part.rows["expires_at"] <= now_ms
    if some(over):
        end_by_ttl(state, topic, group, part.take(over), now_ms)
        part = part.take(~over)
    return part, stale


def _rows(state: EngineState, topic: Topic, refs: Int64Array, now_ms: int) -> RowArray:
    """Rows of refs, from copies of hot seconds where possible."""
    found = state.hot.rows(topic.number, refs, now_ms) if len(state.hot) else None
    if found is None:
        return state.hours.rows(refs)
    mask, rows = found
    if mask is None:
        return rows
    out = np.empty(len(refs), INDEX_ENTRY)
    put_rows(out, mask, rows)
    put_rows(out, ~mask, state.hours.rows(refs[~mask]))
    return out


def records_of(state: EngineState, refs: Int64Array, rows: RowArray) -> bytes:
    """Records of rows that `deliverable` has returned."""
    if len(refs) == 0 or len(state.hot) == 0:
        return state.hours.records(refs, rows)
    copied = state.hot.copied(rows)
    if not some(copied):
        return state.hours.records(refs, rows)
    if every(copied):
        return state.hot.records(rows)
    return scatter_back(
        [
            state.hot.records(take_rows(rows, copied)),
            state.hours.records(refs[~copied], take_rows(rows, ~copied)),
        ],
        [np.flatnonzero(copied), np.flatnonzero(~copied)],
        rows["size"].astype(np.int64),
    )


def with_tags(
    state: EngineState, refs: Int64Array, rows: RowArray, only: TagFilter
) -> tuple[npt.NDArray[np.bool_], bytes | None]:
    """Which rows match a filter by their stored tags; also their records, if read whole."""
    # Most rows that match by mask are handed out, and then their whole records are needed.
    whole = int(rows["size"].sum()) <= WHOLE_BYTES_MAX
    heads = rows if whole else heads_of(rows, "id_size", "key_size", "tags_size")
    records = records_of(state, refs, heads)
    sizes = rows["tags_size"].astype(np.int64)
    starts = np.cumsum(heads["size"].astype(np.int64)) - heads["size"]
    starts += rows["id_size"].astype(np.int64) + rows["key_size"]
    return _tags_match(records, starts, sizes, only), records if whole else None


def _tags_match(
    records: bytes, starts: Int64Array, sizes: Int64Array, only: TagFilter
) -> npt.NDArray[np.bool_]:
    size = int(sizes[0])
    if size == 0 or not alike(sizes):
        ends = (starts + sizes).tolist()
        return only.exact_match([records[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])
    tags = gather(records, starts, sizes)
    if tags == tags[:size] * len(sizes):
        return np.full(len(sizes), only.exact_match([tags[:size]])[0])
    return only.exact_match(np.frombuffer(tags, f"V{size}").tolist())
