"""Sends of a few single messages, handled as integers instead of columns.

Only the common case is handled: messages with new ids, or none, to a topic that exists. If any
check fails, `sending` decides about the send from the beginning, and refuses it if need be. Frame
and state are those that `sending` would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from delaylog.broker.engine.apply.send_frames import apply_send_few
from delaylog.broker.engine.model import SendResult, Topic
from delaylog.broker.engine.send.merging import CREATED, expecting_successors
from delaylog.broker.engine.send.quotas import check_quota_of_few
from delaylog.broker.engine.send.sending import note_send
from delaylog.broker.engine.state import EngineState
from delaylog.contract.times import TIME_MS_MAX, UNIX_MS_MIN
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.few_rows import FewRows
from delaylog.storage.messages.singles import Single, encode_singles, requested_times


def send_few(
    state: EngineState,
    key: tuple[str, str],
    singles: Sequence[Single],
    now_ms: int,
    *,
    free_bytes: int,
) -> SendResult | None:
    """Send single messages of one `merge` to a topic (namespace, name).

    None if `sending` must decide; then nothing was done. Raises EngineError; then nothing was sent.
    """
    topic, limits = state.topics.get(key), state.limits
    # These are the checks of `check_batch` and `check_room`. The last one keeps due times above the
    # hour floor, which `FewRows` requires.
    if (
        topic is None
        or free_bytes < limits.disk_reserve_bytes
        or now_ms < state.hour_floor * HOUR_MS
    ):
        return None
    last_ms = min(now_ms + limits.horizon_ms, TIME_MS_MAX)
    asked_ms, due_ms, named = requested_times(singles, now_ms), list[int](), False
    for single, asked in zip(singles, asked_ms, strict=True):
        if (asked < UNIX_MS_MIN and asked != 0) or asked > last_ms:
            return None
        if len(single.body) > limits.body_bytes_max:
            return None
        due_ms.append(max(asked, now_ms))
        named = named or (single.fields is not None and "id" in single.fields)
    id_hashes = _new_ids(state, topic, singles) if named else ()
    if id_hashes is None:
        return None
    settings = topic.settings
    if settings.quota is not None:
        check_quota_of_few(state, topic, settings.quota, singles, max(asked_ms) - now_ms, now_ms)
    note_send(topic, now_ms)
    ttl_ms, max_retry = settings.ttl_ms, settings.max_retry
    decision, head = _decision(topic.number, state.tag, state.hour_floor, ttl_ms, max_retry)
    wire = encode_singles(singles, asked_ms, singles[0].merge)
    position, end = state.append(FrameKind.SEND, (head, wire), now_ms)
    few = FewRows(singles, due_ms, id_hashes, decision, now_ms, position)
    apply_send_few(state, topic, few, end)
    return SendResult(few.refs, due_ms, CREATED, end)


@lru_cache(maxsize=1_024)
def _decision(
    topic: int, tag: int, hour_floor: int, ttl_ms: int, max_retry: int
) -> tuple[SendDecision, Block]:
    """The decision that all messages are accepted, and its head in the payload of a frame."""
    decision = SendDecision(topic, tag, hour_floor, ttl_ms, max_retry)
    (head,) = decision.encode(b"")
    return decision, head


def _new_ids(state: EngineState, topic: Topic, singles: Sequence[Single]) -> Sequence[int] | None:
    """The hash of each id, 0 = none; None if one may need merging."""
    ids = [single.id for single in singles]
    one = state.id_hash.one
    hashes = [one(id_) if id_ else 0 for id_ in ids]
    named = [hashed for hashed in hashes if hashed]
    known = state.ids.get_few(topic.number, named)
    # The same rule as in `merge_ids`: otherwise no message has any of these ids.
    if any(known) or len(set(named)) < len(named) or expecting_successors(topic):
        return None
    return hashes
