"""Leases of few messages, one by one as integers; `Selection` leases many, in columns.

The fixed cost of columns is that of about sixteen messages here. Frames, state and messages are
those that `Selection` would make. It also does what is rare: then `lease_few` returns None, and has
changed nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from delaylog.broker.engine.apply.state_frames import FewLeases, apply_lease_few
from delaylog.broker.engine.deliver.selecting import ATTEMPTS_MAX, ReceiveRequest, shared_out
from delaylog.broker.engine.late.late_note import late_note
from delaylog.broker.engine.model import FewDelivery, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.hours.few_refs import FoundRow, find_few
from delaylog.storage.layout import FrameKind, ref_to_id
from delaylog.storage.log.payloads import lease_payload

FEW_LEASED_MAX: Final = 16
"""Messages of one consumer that are leased one by one. Measured in processor time: 16 take
110 us, and 135 us in columns; 32 take 195 and 166 us."""
FEW_SHARED_MAX: Final = 64
"""The same for several consumers. Each has its own lease, and in columns each of these leases would
cost several arrays, so columns pay later."""
_due_ms = attrgetter("row.deliver_at")


def lease_few(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    count_max: int,
    lease_ms: int,
) -> FewDelivery | None:
    """Lease up to `count_max` messages for a request without a filter, ids or a claim.

    None if there is none, if there are more than a few, or if one of them needs more: it has a key,
    is not ready any more, has expired, or belongs to a far hour.
    """
    ready, gate = group.made_ready, group.made_gate
    if ready is None or (gate is not None and not gate.idle):
        return None
    if len(state.hot):
        state.hot.drop_read()
        if len(state.hot):
            return None
    if topic.number in state.taps.by_topic:
        return None
    refs = ready.pop_few(count_max, FEW_SHARED_MAX if len(asked.shares) > 1 else FEW_LEASED_MAX)
    if not refs:
        return None
    few = find_few(state.hours, refs, group.number)
    attempts = _attempts(state, topic, group, few, asked) if few else ()
    counts = shared_out(len(refs), asked.shares) if len(asked.shares) > 1 else ()
    if not few or not attempts or not _begun(attempts, counts, asked.begin):
        ready.push_front(np.array(refs, np.int64))
        return None
    # A queue that is empty now has no stale refs.
    ready.dropped(0)
    return _lease(state, topic, group, asked, few, attempts, counts, lease_ms)


def _attempts(
    state: EngineState, topic: Topic, group: Group, few: Sequence[FoundRow], asked: ReceiveRequest
) -> Sequence[int]:
    """The number of each row's attempt; empty unless all of these rows may be handed out, none has
    a key, and one answer has room for all.
    """
    special, size, now_ms = topic.number in state.marks.special, 0, asked.now_ms
    attempts: list[int] = []
    for _, _, row, entry, _ in few:
        if row.key_hash or row.expires_at <= now_ms:
            return ()
        if special and not group.has_one(row, entry):
            return ()
        size += row.size
        attempts.append(min(entry.attempts + 1, ATTEMPTS_MAX))
    if len(few) > 1:
        # The queue contains hints: a ref may be there twice.
        if size > asked.limited_bytes() or len({one.ref for one in few}) < len(few):
            return ()
    return attempts


def _begun(attempts: Sequence[int], counts: Sequence[int], begin: Sequence[int | None]) -> bool:
    """Whether all attempts begin at once; see `ReceiveRequest.begin`."""
    start = 0
    for count, begun in zip(counts or [len(attempts)], begin, strict=False):
        mine = attempts[start : start + count]
        start += count
        if begun is not None and (begun < count or max(mine) > 1):
            return False
    return True


def _lease(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    few: Sequence[FoundRow],
    attempts: Sequence[int],
    counts: Sequence[int],
    lease_ms: int,
) -> FewDelivery:
    now_ms, n = asked.now_ms, len(few)
    first, same = min(few, key=_due_ms) if n > 1 else few[0], attempts.count(attempts[0]) == n
    refs: list[int] = []
    origins: list[int] = []
    for one in few:
        refs.append(one.ref)
        origins.append(one.row.origin)
    sharers = max(len(counts), 1)
    consumers, addresses = asked.consumers[:sharers], asked.addresses[:sharers]
    leases = FewLeases(
        state.next_lease,
        topic.number,
        group.number,
        now_ms + lease_ms,
        refs,
        origins,
        attempts,
        counts,
        consumers,
        addresses,
    )
    payload = lease_payload(
        leases.number,
        (topic.number, group.number),
        leases.deadline_ms,
        array("q", refs).tobytes(),
        attempts[0] if same else array("H", attempts).tobytes(),
        counts=counts,
        consumers=consumers,
        addresses=addresses,
        late=late_note(state, topic, group, first.row.deliver_at, now_ms),
    )
    _, end = state.append(FrameKind.LEASE, payload, now_ms)
    apply_lease_few(state, leases, end)
    _note(state, topic, few, attempts, now_ms)
    return FewDelivery(leases.number, leases.deadline_ms, few, attempts, end, counts)


def _note(
    state: EngineState,
    topic: Topic,
    few: Sequence[FoundRow],
    attempts: Sequence[int],
    now_ms: int,
) -> None:
    """Note how late the messages are; see `Lateness.note_handed_out`."""
    pairs = zip(few, attempts, strict=True)
    fresh: list[FoundRow] = []
    size = 0
    for one, attempt in pairs:
        size += one.row.size
        # A message that was given back without a new due time was late before, or was not.
        if attempt == 1 or one.row.origin != one.ref:
            fresh.append(one)
    if not fresh:
        return
    late = state.series.lateness_of(topic)
    for one in fresh:
        late.handed_out.note(now_ms - one.row.deliver_at)
    if size and late.handed_out.wants_example(now_ms):
        first = min(fresh, key=_due_ms)
        text = first.record[: first.row.id_size].decode("utf-8", "replace")
        late.keep_example(
            now_ms - first.row.deliver_at, text or ref_to_id(first.row.origin), now_ms
        )
