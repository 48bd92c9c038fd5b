"""How long a failed message waits for its retry: by its own backoff, or by that of its topic.

A message's own backoff is stored in its record, in front of its headers. A topic knows whether any
of its messages has one; if not, no record is read.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.settings import delays_ms
from delaylog.contract.own_backoff import NOT_SAID, OWN_BACKOFF_SIZE
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import TEXT_SIZES, Int64Array, RowArray
from delaylog.storage.messages.backoff_columns import have_own_backoff, own_backoffs
from delaylog.storage.messages.rows import heads_of


def retry_delays(
    state: EngineState, topic: Topic, refs: Int64Array, rows: RowArray, attempts: Int64Array
) -> Int64Array:
    """Delays of messages before their next attempt."""
    uniform = np.array([state.random.random() for _ in range(len(refs))])
    out = topic.settings.backoff.delay_ms(attempts, uniform)
    if not topic.own_backoffs:
        return out
    at = np.flatnonzero(rows["headers_size"] >= OWN_BACKOFF_SIZE)
    if len(at):
        heads = heads_of(take_rows(rows, at), *TEXT_SIZES)
        records = state.hours.records(refs[at], heads)
        sizes = heads["headers_size"].astype(np.int64)
        starts = np.cumsum(heads["size"].astype(np.int64)) - sizes
        own = have_own_backoff(records, starts, sizes)
        at, starts = at[own], starts[own]
        out[at] = _own_delays(topic, records, starts, attempts[at], uniform[at])
    return out


def _own_delays(
    topic: Topic, records: bytes, starts: Int64Array, attempts: Int64Array, uniform: Int64Array
) -> Int64Array:
    """Delays by the backoffs at `starts` in `records`; missing members are the topic's."""
    said, ours = own_backoffs(records, starts), topic.settings.backoff
    first, most = said["first_ms"].astype(np.int64), said["max_ms"].astype(np.int64)
    first = np.where(first == NOT_SAID, ours.first_ms, first)
    # A message's own first delay is not limited by the topic's maximum.
    most = np.where(most == NOT_SAID, np.maximum(ours.max_ms, first), most)
    factor = np.where(said["factor"] == NOT_SAID, ours.factor, said["factor"])
    jitter = np.where(said["jitter"] == NOT_SAID, ours.jitter, said["jitter"])
    delays = delays_ms(attempts, uniform, first, most, factor, jitter=jitter)
    return np.where(first == 0, 0, delays)
