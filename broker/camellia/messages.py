"""Messages in camellia's format: nine members, with camellia's state numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delaylog.broker.engine.control.changes import change_ended, end_found
from delaylog.broker.engine.deliver.expiry import end_expired
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import just
from delaylog.broker.engine.model import Delivery, FoundMessage, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import Cause, MessageState, ref_to_id
from delaylog.storage.messages.records import split_record, split_records

CONSUMING: Final = int(MessageState.LEASED)


def status_of(found: FoundMessage) -> int:
    """camellia's state number; a message that was handed out stays "consuming" until it ends."""
    if found.state <= MessageState.READY and int(found.entry["attempts"]):
        return CONSUMING
    return int(MessageState.CANCELLED if found.state is MessageState.REPLACED else found.state)


def is_shown(topic: Topic, found: FoundMessage, now_ms: int) -> bool:
    """Whether camellia still knows the message: ended ones are kept for a while."""
    if found.state < MessageState.ACKED:
        return True
    entry = found.entry
    hidden = int(entry["cause"]) == Cause.FORGOTTEN
    return not hidden and now_ms < int(entry["time"]) + topic.settings.ended_keep_ms


def _find(state: EngineState, topic: Topic, msg_id: str, now_ms: int) -> FoundMessage | None:
    """The message of an id, if camellia still knows it."""
    found = find_ids(state, topic, [msg_id], now_ms)
    end_expired(state, topic, found, now_ms)
    one = found[0]
    return None if one is None or not is_shown(topic, one, now_ms) else one


def find_shown(state: EngineState, topic: Topic, msg_id: str, now_ms: int) -> FoundMessage | None:
    """The message of an id if camellia still knows it, for a call that reads or deletes it."""
    found = _find(state, topic, msg_id, now_ms)
    if found is None:
        return None
    if found.state is MessageState.LEASED and int(found.row["expires_at"]) <= now_ms:
        # For camellia a ttl ends a message under lease, too.
        end_found(state, topic, just(found, topic.default), MessageState.DEAD, Cause.TTL, now_ms)
        found = _find(state, topic, msg_id, now_ms)
        assert found is not None, "an ended message is kept for a while"
    if found.state >= MessageState.ACKED:
        state.activity(topic).found_ended += 1
    return found


def finish(state: EngineState, topic: Topic, msg_id: str, now_ms: int) -> None:
    """ack=true: the message becomes acked, whatever its state was, if camellia still knows it."""
    found = _find(state, topic, msg_id, now_ms)
    if found is None or found.state in (MessageState.ACKED, MessageState.REPLACED):
        return
    topic.default.acked_rate.look(now_ms, topic.default.counts.acked)
    if found.state < MessageState.ACKED:
        end_found(state, topic, just(found, topic.default), MessageState.ACKED, Cause.ACK, now_ms)
    else:
        change_ended(state, topic, just(found, topic.default), now_ms, kind=MessageState.ACKED)


def delete(state: EngineState, topic: Topic, msg_id: str, now_ms: int, *, release: bool) -> bool:
    """Delete a living message, and with `release` hide it at once; False if none was living."""
    found = find_shown(state, topic, msg_id, now_ms)
    if found is None:
        return False
    if found.state < MessageState.ACKED:
        cause = Cause.FORGOTTEN if release else Cause.CANCEL
        end_found(state, topic, just(found, topic.default), MessageState.CANCELLED, cause, now_ms)
        return True
    if release and found.state is not MessageState.REPLACED:
        change_ended(state, topic, just(found, topic.default), now_ms, cause=Cause.FORGOTTEN)
    return False


def found_members(state: EngineState, topic: Topic, found: FoundMessage) -> dict[str, Any]:
    """The members of a message that was looked up."""
    refs, rows = np.array([found.ref], np.int64), np.array([found.row])
    record = split_record(state.hours.records(refs, rows), found.row)
    msg_id, attempts = record.id or ref_to_id(found.origin), int(found.entry["attempts"])
    return members(topic.name, msg_id, record.body, found.row, attempts, status_of(found))


def delivered_members(topic_name: str, delivery: Delivery) -> list[dict[str, Any]]:
    """The members of messages that were handed out."""
    records = split_records(delivery.records, delivery.rows)
    columns = (delivery.origins.tolist(), delivery.attempts.tolist(), delivery.rows, records)
    return [
        members(topic_name, record.id or ref_to_id(origin), record.body, row, attempts, CONSUMING)
        for origin, attempts, row, record in zip(*columns, strict=True)
    ]


def members(
    topic_name: str, msg_id: str, body: bytes, row: Any, attempts: int, status: int
) -> dict[str, Any]:
    """A `delayMsg`. Bytes that are not UTF-8 become replacement characters."""
    return {
        "topic": topic_name,
        "msgId": msg_id,
        "msg": body.decode("utf-8", "replace"),
        "produceTime": int(row["sent_at"]),
        "triggerTime": int(row["deliver_at"]),
        "expireTime": int(row["expires_at"]),
        "maxRetry": int(row["max_retry"]),
        "retry": attempts,
        "status": status,
    }
