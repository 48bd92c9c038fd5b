"""Send: check a batch, decide, append one frame, answer with refs.

The whole batch is checked against syntax and limits before anything is decided. Ids are merged with
those of living messages, by applied state, so that frames in flight count. The frame contains the
decision, and `apply_send` does the rest.

`send_few` handles sends of a few single messages as integers instead of columns, in the common case
only: messages with new ids, or none, to a topic that exists. If any check fails, the caller decides
about the send from the beginning, and refuses it if need be. Frame and state are those that `send`
would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from delaylog.broker.engine.apply.send_frames import (
    Logged,
    apply_send,
    apply_send_few,
    in_batch_order,
)
from delaylog.broker.engine.errors import ConflictError, DiskFullRefusal, TooLargeError
from delaylog.broker.engine.model import SendResult, Topic
from delaylog.broker.engine.send.due_times import check_delays, check_due_times
from delaylog.broker.engine.send.merge import (
    CREATED,
    REPLACED,
    Merge,
    end_replaced,
    expecting_successors,
    merge_ids,
)
from delaylog.broker.engine.send.producers import FirstAnswer, fill_kept
from delaylog.broker.engine.send.quotas import check_quota, check_quota_of_few
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.commands import get_or_make_topic
from delaylog.contract.members import limit_note
from delaylog.contract.message_fields import (
    DEFAULT_I64,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
    TEXT_COLUMNS,
    TTL_MS,
    TTL_MS_MAX,
)
from delaylog.contract.times import TIME_MS_MAX, UNIX_MS_MIN
from delaylog.storage.columns import some
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.batch import (
    Block,
    MessageBatch,
    Single,
    TextColumn,
    column_max,
    encode_singles,
    expand,
    requested_times,
)
from delaylog.storage.messages.rows import FewRows

# -------------------------------------------------------------------------------------- a batch


def _clean_ids(column: TextColumn, n: int) -> bool:
    """Whether all ids of a column are valid; `check_packed` then names what is wrong with one."""
    if column_max(column.size) > ID_BYTES_MAX:
        return False
    raw = np.frombuffer(column.block, np.uint8)
    if raw.min() >= ord(" ") and raw.max() < ord("~"):
        # Printable ASCII without `~`, with which the broker's own ids begin.
        return True
    if not all_utf8(column, n):
        return False
    # U+0080 to U+009F are C2 80 to C2 9F.
    control = some(raw < 32) or some(raw == 127) or some((raw[:-1] == 0xC2) & (raw[1:] < 0xA0))
    sizes = column.sizes(n)
    starts = (np.cumsum(sizes) - sizes)[sizes > 0]
    return not control and not some(raw[starts] == ord("~"))


def _clean_keys(column: TextColumn, n: int) -> bool:
    return column_max(column.size) <= KEY_BYTES_MAX and all_utf8(column, n)


_ALL_CLEAN: Final = {"id": _clean_ids, "key": _clean_keys}
"""Fast checks of whole columns."""


def _check_texts(batch: MessageBatch) -> None:
    for name, field in TEXT_COLUMNS.items():
        column: TextColumn = getattr(batch, name)
        if column.empty or (name in _ALL_CLEAN and _ALL_CLEAN[name](column, batch.n)):
            continue
        check = field.check_packed
        assert check is not None, "text columns have a check"
        seen = {b""}
        for item, raw in enumerate(batch.tag_values if name == "tags" else column.values(batch.n)):
            # Many messages have the same tags.
            if raw not in seen:
                check(raw, item)
                seen.add(raw)


def all_utf8(column: TextColumn, n: int) -> bool:
    """Whether each value is UTF-8: the whole block is, and no value begins inside a character."""
    raw = bytes(column.block)
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    sizes = column.sizes(n)
    starts = (np.cumsum(sizes) - sizes)[sizes > 0]
    return not ((np.frombuffer(raw, np.uint8)[starts] & 0xC0) == 0x80).any()


def check_batch(state: EngineState, batch: MessageBatch, now_ms: int) -> None:
    """Refuse a batch that exceeds a limit, naming the column and the row.

    Texts, which take the longest, are checked once: by whoever parsed them, or by the first call.
    """
    limits = state.limits
    if column_max(batch.body.size) > limits.body_bytes_max:
        raise TooLargeError(
            f"a body has at most {limits.body_bytes_max} bytes, not {column_max(batch.body.size)}"
            + limit_note("body_bytes_max"),
            field="body",
            item=int(np.argmax(batch.body.size)),
        )
    if batch.delay_ms is not None:
        check_delays(batch.delay_ms, limits.horizon_ms)
    elif batch.deliver_at_ms is not None:
        check_due_times(batch.deliver_at_ms, now_ms, limits.horizon_ms, name=batch.due_name)
    if batch.ttl_ms is not None:
        ttl = expand(batch.ttl_ms, batch.n)
        wrong = np.flatnonzero(((ttl < -1) & (ttl != DEFAULT_I64)) | (ttl > TTL_MS_MAX))
        if len(wrong):
            TTL_MS.check(int(ttl[wrong[0]]), item=int(wrong[0]))
    if not batch.texts_checked:
        _check_texts(batch)
        batch.texts_checked = True


def topic_of_send(
    state: EngineState, key: tuple[str, str], batch: MessageBatch, now_ms: int, *, free_bytes: int
) -> Topic:
    """The topic of a send, by (namespace, name); created only if the send is not refused."""
    topic = state.topics.get(key)
    if topic is None:
        check_batch(state, batch, now_ms)
        check_room(state, free_bytes)
        topic = get_or_make_topic(state, *key, now_ms)
    return topic


def check_room(state: EngineState, free_bytes: int) -> None:
    """DiskFullRefusal if the disk has no room for more messages."""
    if free_bytes < state.limits.disk_reserve_bytes:
        raise DiskFullRefusal("the disk has no room for more messages; deliveries go on")


def note_send(topic: Topic, now_ms: int) -> None:
    """Note that messages are about to be sent to a topic."""
    topic.used_ms = now_ms
    topic.sent_rate.look(now_ms, topic.sent)


def decide_send(state: EngineState, topic: Topic, merge: Merge, now_ms: int) -> SendDecision:
    """The decision about a batch whose ids were merged, by the topic's current settings."""
    note_send(topic, now_ms)
    return SendDecision(
        topic=topic.number,
        tag=state.tag,
        hour_floor=state.hour_floor,
        ttl_ms=topic.settings.ttl_ms,
        max_retry=topic.settings.max_retry,
        accepted=merge.accepted,
        successors=merge.successors,
    )


def send(
    state: EngineState, topic: Topic, batch: MessageBatch, now_ms: int, *, free_bytes: int
) -> SendResult:
    """Send a batch to a topic. Raises EngineError or MemberError; then nothing was done."""
    check_batch(state, batch, now_ms)
    seen: FirstAnswer | None = None
    producer = None if batch.producer is None else f"{topic.number}/{batch.producer}"
    if producer is not None and batch.sequence is not None:
        # Sequences are per topic: a producer may number its sends to two topics independently.
        seen = state.producers.seen(producer, batch.sequence, batch.n)
        if seen is not None:
            if not seen.was_of(batch):
                raise ConflictError(
                    f"sequence {batch.sequence} of this producer (an Idempotency-Key is one) was "
                    "used for other messages; nothing was sent: give a new one",
                    field="sequence",
                )
            refs, due, results = seen.unpack()
            return SendResult(refs, due, results, state.log.end_position)
    # Checked after repeated sends, which are answered even when the disk is full.
    check_room(state, free_bytes)
    merge = merge_ids(state, topic, batch, batch.merge or topic.settings.merge, now_ms)
    check_quota(state, topic, batch, merge, now_ms)
    decision = decide_send(state, topic, merge, now_ms)
    decision.producer, decision.sequence, decision.kept = producer, batch.sequence, merge.kept
    position, end = state.append(FrameKind.SEND, decision.encode(batch.wire), now_ms)
    placed, refs = apply_send(state, batch, decision, Logged(position, end, now_ms))
    for group, old in merge.replaced:
        # The frame of the new messages comes before the one that ends the old: if the log is torn
        # between the two, both exist rather than none.
        end_replaced(state, topic, group, old, now_ms)
        end = state.log.end_position
    out, due = in_batch_order(placed, refs, batch.n)
    results = CREATED
    if merge.kept is not None or merge.replaced_rows is not None:
        results = np.zeros(batch.n, np.int64)
        if merge.replaced_rows is not None:
            results[merge.replaced_rows] = REPLACED
        if merge.kept is not None:
            rows, kept_refs, kept_due, codes = merge.kept
            results[rows] = codes
            fill_kept(out, due, rows, kept_refs, kept_due)
    return SendResult(out, due, results, end)


# ------------------------------------------------------------------------ a few single messages


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
