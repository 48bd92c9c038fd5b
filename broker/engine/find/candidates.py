"""Candidates: the few messages that can match a filter by key or tag, from the index of texts.

Every answered send is among them, since a send puts its entries when it is applied. The caller
checks each: a candidate may have ended or moved, or have another text with the same hash.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import Int64Array
from delaylog.storage.texts.text_keys import key_of_key, key_of_tag


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
