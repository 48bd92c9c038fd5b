"""Messages that are ready again: after a lease, or when a key or a rate limit lets them through.

Each function marks the group as newly ready, so that the host wakes consumers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delaylog.broker.engine.deliver.leases import Keyed
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import every
from delaylog.storage.layout import Int64Array, RowArray


def known_rows(state: EngineState, refs: Int64Array) -> tuple[Int64Array, RowArray]:
    """Those of the refs whose rows still exist, with their rows."""
    known = state.hours.known(refs)
    refs = refs if every(known) else refs[known]
    return refs, state.hours.rows(refs)


def make_ready_again(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, *, failed: bool
) -> None:
    """Make messages ready at once, before the frame that returned them is committed.

    This is safe, unlike for rows of a SEND: the messages were committed and due before, so none is
    early. A LEASE frame that hands one out follows the frame that returned it in the log, so it is
    never committed without it. If this node loses both frames, the next leader still has the
    earlier lease and hands the message out after that: a repeat, never a loss, as when any answered
    LEASE frame is lost.
    """
    refs, rows = known_rows(state, refs)
    if len(refs):
        state.expiries.add(topic.expiry_owner, refs, rows)
        group.ready.put_back(refs, rows, failed=failed)
        state.marks.newly_ready.add((topic.number, group.number))


def free_keys(
    state: EngineState,
    topic: Topic,
    group: Group,
    keyed: Sequence[Keyed],
    origins: Int64Array,
    *,
    living: bool = False,
) -> None:
    """Unlock the keys of messages that ended, and unpark their successors.

    `keyed` = those that were under lease and have keys. With `living`, the messages have not ended
    but were moved, and their successors go on waiting.
    """
    gate = group.made_gate
    if gate is None:
        return
    for each in keyed:
        gate.unlock(each.keys)
    if gate.has_blockers:
        ended = origins.tolist()
        gate.give_up(ended)
        for only, heirs in () if living else gate.end(ended):
            refs, rows = known_rows(state, np.array(heirs, np.int64))
            group.ready.unpark(only, refs, rows)
            state.marks.newly_ready.add((topic.number, group.number))
    if gate.take_watched() or gate.parking.freed:
        state.marks.newly_ready.add((topic.number, group.number))


def wake_rate_limited(state: EngineState, now_ms: int) -> None:
    """Mark groups whose rate limit lets something through now."""
    for key, ready_ms in list(state.marks.rate_limited.items()):
        if ready_ms <= now_ms:
            del state.marks.rate_limited[key]
            state.marks.newly_ready.add(key)
