"""The index of texts: entries of new rows, and the few messages that a filter can match by them.

Every answered send is among the candidates, since a send puts its entries when it is applied. The
caller checks each: a candidate may have ended or moved, or have another text with the same hash.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import some
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.ids.recent_ids import FEW_KEYS_MAX
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.messages.batch import MessageBatch
from delaylog.storage.messages.few_rows import FewRows
from delaylog.storage.messages.rows import PlacedRows, heads_of
from delaylog.storage.texts.text_keys import (
    entries_of_few,
    entries_of_keys,
    entries_of_tags,
    key_of_key,
    key_of_tag,
)


def candidates(state: EngineState, topic: int, texts: MessageFilter) -> Int64Array | None:
    """Origins of the messages of a topic that may have the key and the tag, by hour and row.

    None = go through all messages: the filter names neither, or very many messages have both, or
    the index is still being made.
    """
    keys = []
    if texts.key:
        keys.append(key_of_key(topic, texts.key))
    if texts.tag:
        keys.append(key_of_tag(topic, texts.tag))
    if not keys or not state.texts.whole:
        return None
    first_hour = min(state.hours.counts, default=0)
    found = [state.texts.look_up(key, first_hour) for key in keys]
    few = [origins for origins in found if origins is not None]
    if not few:
        return None
    origins = min(few, key=len)
    known: Int64Array = origins[np.flatnonzero(state.hours.known(origins))]
    return known


_INDEXED: Final = frozenset({"key", "tags"})


def index_sent(
    state: EngineState, topic: int, batch: MessageBatch, placed: PlacedRows, refs: Int64Array
) -> None:
    """Add the rows of a batch, which were given these refs."""
    if len(refs) <= FEW_KEYS_MAX and placed.order is None:
        key_hash = [] if batch.key.empty else placed.rows["key_hash"].tolist()
        few = [] if batch.tags.empty else batch.tag_values
        state.texts.put_few(*entries_of_few(topic, key_hash, few, refs.tolist()))
        return
    if not batch.key.empty:
        state.texts.put(*entries_of_keys(topic, placed.rows["key_hash"], refs))
    if not batch.tags.empty and len(refs):
        tags = batch.tag_values
        if placed.order is not None:
            tags = [tags[row] for row in placed.order.tolist()]
        state.texts.put(*entries_of_tags(topic, tags, refs))


def index_few(state: EngineState, topic: int, few: FewRows) -> None:
    """The same for a few rows."""
    if few.names & _INDEXED:
        state.texts.put_few(*entries_of_few(topic, few.key_hashes, few.tags, few.refs))


def index_stored(state: EngineState, refs: Int64Array, rows: RowArray) -> None:
    """Add the messages of stored rows of one topic."""
    topic, origins = int(rows["topic"][0]), rows["origin"].astype(np.int64)
    if some(rows["key_hash"]):
        state.texts.put(*entries_of_keys(topic, rows["key_hash"], origins))
    at = np.flatnonzero(rows["tags_size"])
    if len(at):
        tagged = take_rows(rows, at)
        names = ("id_size", "key_size", "tags_size")
        data = state.hours.records(refs[at], heads_of(tagged, *names))
        sizes = [tagged[name].astype(np.int64) for name in names]
        ends = np.cumsum(np.stack(sizes, axis=1)).reshape(-1, 3)
        tags = [data[start:end] for start, end in ends[:, 1:].tolist()]
        state.texts.put(*entries_of_tags(topic, tags, origins[at]))
