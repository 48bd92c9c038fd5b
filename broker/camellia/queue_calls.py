"""camellia's six queue calls over the engine.

Each call returns the members of its answer; `code` defaults to 200. It raises a Problem to refuse.
A message has nine members, with camellia's state numbers.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, TypeAlias

import numpy as np

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.writes import Settling, settle_each
from delaylog.broker.camellia.monitor import Monitor
from delaylog.broker.engine.changes import change_ended, end_found
from delaylog.broker.engine.deliver.expiry import end_expired
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.lookup.find_messages import find_ids, find_origins
from delaylog.broker.engine.lookup.found_messages import just
from delaylog.broker.engine.model import (
    DEFAULT_NAMESPACE,
    Delivery,
    FoundMessage,
    SendResult,
    Topic,
)
from delaylog.broker.engine.send.merge import CREATED
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.contract.calls.shapes import LEASE_MS_MAX, WAIT_MS_MAX
from delaylog.contract.members import limit_note
from delaylog.contract.message_fields import BACKOFF, BY_NAME, TTL_MS_MAX, from_text, pack_fields
from delaylog.storage.layout import Cause, Int64Array, MessageState, ref_to_id
from delaylog.storage.messages.batch import Single
from delaylog.storage.messages.records import split_record, split_records

# ------------------------------------------------------------------------------------- messages

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
    """ack=true: the message becomes acked, unless it was replaced or camellia has forgotten it."""
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


# ---------------------------------------------------------------------------------------- calls

TTL_MS: Final = 3_600_000
MAX_RETRY: Final = 10
ACK_TIMEOUT_MS: Final = 30_000
LONG_POLL_MS: Final = 10_000
BATCH: Final = 1
WAITERS_MAX: Final = 100_000
"""Limit of long polls that wait for one topic; further ones are answered at once."""
TOPIC_BYTES_MAX: Final = 200
_RETRY_MAX: Final = 65_534
TOPIC_SETTINGS: Final = TopicSettings(
    merge="keep",
    ttl_ms=TTL_MS,
    max_retry=MAX_RETRY,
    lease_ms=ACK_TIMEOUT_MS,
    backoff=Backoff(first_ms=0),
)
"""Settings of a topic that is created by its first send over camellia's API."""

Values: TypeAlias = dict[str, Any]


class QueueCalls:
    """The queue calls of one node; the monitor counts them."""

    def __init__(self, node: ServingNode, monitor: Monitor) -> None:
        self._node = node
        self._monitor = monitor

    def topic(self, name: str) -> Topic | None:
        """The topic, or None if it does not exist."""
        return self._node.engine.state.topics.get((DEFAULT_NAMESPACE, name))

    def _make_topic(self, name: str) -> None:
        """Create a topic with camellia's settings, if it does not exist. Refuses a bad name."""
        if self.topic(name) is not None:
            return
        if len(name.encode()) > TOPIC_BYTES_MAX or not name.isprintable():
            raise Problem(
                "bad_request",
                f"a topic's name has at most {TOPIC_BYTES_MAX} bytes, all printable",
                field="topic",
            )
        node = self._node
        if node.refusing_sends:
            raise Problem("disk_full", "the disk has no space for more messages; deliveries go on")
        node.engine.put_topic(name, TOPIC_SETTINGS, node.clock.now_ms())

    async def send_msg(self, ctx: Context, values: Values) -> Values:
        """sendMsg: send a message that is due after its delay."""
        name, text, delay_ms = values["topic"], values["msg"], max(values["delayMillis"], 0)
        if not name or not text:
            return {"code": 400}
        limits = self._node.engine.limits
        msg_id = values["msgId"] or uuid.uuid4().hex
        body = text.encode()
        if len(body) > limits.body_bytes_max:
            raise Problem(
                "too_large",
                f"a message has at most {limits.body_bytes_max} bytes"
                + limit_note("body_bytes_max"),
            )
        if delay_ms > limits.horizon_ms:
            raise Problem(
                "bad_request",
                f"delayMillis is at most {limits.horizon_ms}" + limit_note("horizon_ms"),
            )
        ttl_ms, max_retry = values["ttlMillis"], values["maxRetry"]
        ttl_ms = min(ttl_ms, TTL_MS_MAX) if ttl_ms > 0 else TTL_MS
        max_retry = min(max_retry, _RETRY_MAX) if max_retry >= 0 else MAX_RETRY
        backoff = values[BACKOFF.name]
        fields = pack_fields(
            {
                "id": msg_id,
                "ttl_ms": ttl_ms,
                "max_retry": max_retry,
                "backoff": from_text(BY_NAME[BACKOFF.name], backoff) if backoff else None,
            }
        )
        ctx.caller.take_messages(1, self._node.clock.now_ms())
        single = Single(body, delay_ms, True, fields, merge="keep")
        result, row, kept = await self._created_or_kept(ctx, name, single)
        self._monitor.calls(name).send += 1
        if kept is not None:
            return {"msg": "success", "delayMsg": kept}
        due_ms = int(result.deliver_at_ms[row])
        shown = {
            "sent_at": due_ms - delay_ms,
            "deliver_at": due_ms,
            "expires_at": due_ms + ttl_ms,
            "max_retry": max_retry,
        }
        status = int(MessageState.WAITING if delay_ms else MessageState.READY)
        return {
            "msg": "success",
            "delayMsg": members(name, msg_id, body, shown, 0, status),
        }

    async def _created_or_kept(
        self, ctx: Context, name: str, single: Single
    ) -> tuple[SendResult, int, Values | None]:
        """The send's result, its row in it, and the living message with the same id, if any."""
        node = self._node
        while True:
            if node.engine.housekeeping.crowded():
                await node.room()
            self._make_topic(name)
            result, row = await ctx.node.turn.sends.send((DEFAULT_NAMESPACE, name), single)
            if result.code(row) == CREATED:
                return result, row, None
            state, topic = node.engine.state, self.topic(name)
            if topic is None:
                continue
            old = _seen(state, topic, np.asarray(result.refs[row : row + 1]), node.clock.now_ms())
            if old is None:
                # The living message ended and was removed while this call waited for the disk,
                # maybe together with its topic. This send added nothing, so send it again.
                continue
            shown = found_members(state, topic, old)
            await node.durable(state.position)
            return result, row, shown

    async def pull_msg(self, _ctx: Context, values: Values) -> Values:
        """pullMsg: receive ready messages without waiting."""
        return await self._pull(values, 0)

    async def long_polling_msg(self, _ctx: Context, values: Values) -> Values:
        """longPollingMsg: receive ready messages, waiting if there are none."""
        wait_ms = values["longPollingTimeoutMillis"]
        wait_ms = LONG_POLL_MS if wait_ms <= 0 else wait_ms
        if (
            self._node.waiters.waiting((DEFAULT_NAMESPACE, values["topic"], DEFAULT_NAME))
            >= WAITERS_MAX
        ):
            wait_ms = 0
        return await self._pull(values, min(wait_ms, WAIT_MS_MAX))

    async def _pull(self, values: Values, wait_ms: int) -> Values:
        name, lease_ms, batch = values["topic"], values["ackTimeoutMillis"], values["batch"]
        if not name:
            return {"code": 400}
        lease_ms = ACK_TIMEOUT_MS if lease_ms <= 0 else lease_ms
        if lease_ms > LEASE_MS_MAX:
            raise Problem("bad_request", f"ackTimeoutMillis is at most {LEASE_MS_MAX}")
        batch = BATCH if batch <= 0 else min(batch, self._node.engine.limits.receive_max)
        call = ReceiveCall(batch, wait_ms, lease_ms)
        delivery = await long_poll(self._node, (DEFAULT_NAMESPACE, name), call)
        if delivery is None:
            return {"delayMsgList": []}
        self._monitor.calls(name).pulled(delivery, self._node.clock.now_ms())
        return {"delayMsgList": delivered_members(name, delivery)}

    async def ack_msg(self, _ctx: Context, values: Values) -> Values:
        """ackMsg: end a message as done (ack=true), or make it ready again (ack=false)."""
        name, msg_id = values["topic"], values["msgId"]
        if not name or not msg_id:
            return {"code": 400}
        state, topic, now_ms = self._node.engine.state, self.topic(name), self._node.clock.now_ms()
        if topic is not None and values["ack"]:
            finish(state, topic, msg_id, now_ms)
        elif topic is not None:
            found = find_ids(state, topic, [msg_id], now_ms)[0]
            if found is not None and found.state is MessageState.LEASED:
                origins = np.array([found.origin], np.int64)
                lease = int(found.entry["lease"])
                back = Settling("nack", delay_ms=0)
                settle_each(self._node, topic, back, [Receipts(lease, origins)])
        await self._settled()
        self._monitor.calls(name).ack += 1
        return {"msg": "success"}

    async def _settled(self) -> None:
        """Wake waiters of returned messages, and wait until the log is durable up to its end."""
        node = self._node
        node.wake_ready()
        node.kick_dispatch()
        await node.durable(node.engine.state.position)

    async def delete_msg(self, _ctx: Context, values: Values) -> Values:
        """deleteMsg: end a living message; with `release`, hide it at once."""
        name, msg_id = values["topic"], values["msgId"]
        if not name or not msg_id:
            return {"code": 400}
        state, topic, now_ms = self._node.engine.state, self.topic(name), self._node.clock.now_ms()
        done = topic is not None and delete(state, topic, msg_id, now_ms, release=values["release"])
        await self._settled()
        if not done:
            return {"code": 404}
        self._monitor.calls(name).delete += 1
        return {"msg": "success"}

    async def get_msg(self, _ctx: Context, values: Values) -> Values:
        """getMsg: return a message that is living or has ended recently."""
        name, msg_id = values["topic"], values["msgId"]
        if not name or not msg_id:
            return {"code": 400}
        state, topic, now_ms = self._node.engine.state, self.topic(name), self._node.clock.now_ms()
        found = None if topic is None else find_shown(state, topic, msg_id, now_ms)
        shown = None
        if topic is not None and found is not None:
            shown = found_members(state, topic, found)
        await self._settled()
        if shown is None:
            return {"code": 404}
        self._monitor.calls(name).get += 1
        return {"msg": "success", "delayMsg": shown}


def _seen(
    state: EngineState, topic: Topic, origins: Int64Array, now_ms: int
) -> FoundMessage | None:
    """A message as seen by the first group that has it: a topic may have no default group."""
    for group in topic.groups.values():
        found = find_origins(state, origins, topic, now_ms, group)[0]
        if found is not None:
            return found
    return None
