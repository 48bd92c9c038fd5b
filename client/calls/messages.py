"""Calls that send, receive and settle messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack, get_args

from delaylog.client.calls.call import (
    BULK_FORM,
    JSON_TYPE,
    Call,
    Form,
    Places,
    json_call,
    path_of,
    request,
)
from delaylog.client.keywords import SettleKeywords, TimeLimit
from delaylog.client.models import Sent
from delaylog.client.shards.receives import Wanted, process_name
from delaylog.client.shards.settlements import Verb
from delaylog.client.wire.bulk import (
    BULK_TYPE,
    Numbers,
    ReceivedBatch,
    SendAnswer,
    SendColumns,
    SettleAnswer,
    SettleMembers,
    Texts,
    decode_acked_and_received,
    decode_received,
    decode_send_answer,
    decode_settled,
    encode_receive,
    encode_send,
    encode_settle,
)
from delaylog.client.wire.checks import answer_wait_s, check_keywords, check_sendable, check_word
from delaylog.client.wire.json_form import Delivered, Received, with_body
from delaylog.client.wire.times import in_ms, limit_of, spans_in_ms, split_limit

VERBS: Final = get_args(Verb)
ALL_COLUMNS: Final = ("key", "tags", "headers", "priority")
T = TypeVar("T")
_AT_ONCE: Final = timedelta(0)
_JSON_TO_BULK: Final = Form(JSON_TYPE, BULK_TYPE)


class BulkSendKeywords(SendColumns, TimeLimit, total=False):
    """The columns of a bulk send, and the time limit."""


def send(
    places: Places,
    /,
    topic: str,
    body: bytes | str,
    *,
    idempotency_key: str | None = None,
    **members: Any,
) -> Call[Sent]:
    """Send one message; `members` are JSON members of the API (deliver_at_ms, id, key, …), but
    `delay` and `ttl` are timedeltas.
    """
    said = spans_in_ms("send", members, "delay", "ttl")
    call = request("send", places, topic, **with_body(said, body))
    return _with_key(call, idempotency_key).read(_sent)


def send_many(
    places: Places,
    /,
    topic: str,
    shapes: Sequence[Mapping[str, Any]],
    *,
    idempotency_key: str | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[list[Sent]]:
    """Send an array of JSON objects. A malformed item refuses all.

    All items must have one `merge`; ids are merged one by one.
    """
    messages = []
    for each in shapes:
        rest = {name: value for name, value in each.items() if name != "body"}
        messages.append(with_body(rest, each.get("body", b"")))
    limit_s = limit_of("send_many", limits)
    call = json_call("POST", path_of("send", places, topic), messages, limit_s=limit_s)
    call = _with_key(call, idempotency_key)
    return call.read(lambda answer: list(map(_sent, answer["messages"])))


def _with_key(call: Call[T], key: str | None) -> Call[T]:
    """The call, which may be repeated if it has an idempotency key."""
    if key is None:
        return call
    return replace(call, repeatable=True, headers={"Idempotency-Key": key})


def send_columns(
    places: Places,
    /,
    topic: str,
    bodies: Texts,
    **columns: Unpack[BulkSendKeywords],
) -> Call[SendAnswer]:
    """Send many messages as columns; see `encode_send` for the optional ones.

    With `producer` and `sequence` the call may be repeated after AnswerLost: the broker then
    repeats its first answer and adds nothing.
    """
    limit_s, rest = split_limit(columns)
    wire = encode_send(bodies, **rest)
    repeatable = columns.get("producer") is not None and columns.get("sequence") is not None
    return send_wire(places, topic, wire, repeatable=repeatable, limit_s=limit_s)


def send_wire(
    places: Places,
    /,
    topic: str,
    wire: bytes,
    *,
    repeatable: bool = True,
    limit_s: float | None = None,
) -> Call[SendAnswer]:
    """Send an encoded bulk body; `repeatable` if it has a producer and a sequence."""
    path = path_of("send", places, topic)
    return Call("POST", path, wire, BULK_FORM, decode_send_answer, repeatable, limit_s=limit_s)


def receive(
    places: Places,
    /,
    topic: str,
    *,
    max: int = 1,
    wait: timedelta = _AT_ONCE,
    lease: timedelta | None = None,
    **members: Any,
) -> Call[Received]:
    """Lease up to `max` ready messages, waiting up to `wait` for the first."""
    said = _waiting("receive", wait=wait, lease=lease, **members)
    call = request("receive", places, topic, max=max, **said)
    return replace(call, extra_s=answer_wait_s(said["wait_ms"])).read(_received)


def _waiting(call: str, **members: Any) -> dict[str, Any]:
    """The members of a receive, with `wait` and `lease` in milliseconds."""
    return spans_in_ms(call, members, "wait", "lease")


def _received(answer: Any) -> Received:
    return Received(list(map(Delivered.of, answer["messages"])), answer["now_ms"])


def ack_and_receive(
    places: Places,
    /,
    topic: str,
    receipts: Sequence[str],
    *,
    max: int = 1,
    wait: timedelta = _AT_ONCE,
    **members: Any,
) -> Call[tuple[list[str], Received]]:
    """Ack by receipts, then receive, in one request.

    The acks are durable before the broker starts to wait for messages.
    """
    said = _waiting("ack_and_receive", wait=wait, **members)
    call = request("ackAndReceive", places, topic, receipts=list(receipts), max=max, **said)
    return replace(call, extra_s=answer_wait_s(said["wait_ms"])).read(
        lambda answer: (list(answer["results"]), _received(answer))
    )


def receive_columns(
    places: Places,
    /,
    topic: str,
    *,
    max: int = 1000,
    wait: timedelta = _AT_ONCE,
    lease: timedelta | None = None,
    **members: Any,
) -> Call[ReceivedBatch]:
    """Lease up to `max` ready messages as columns, all under one lease."""
    said = _waiting("receive_bulk", wait=wait, lease=lease, **members)
    asked = request("receive", places, topic, max=max, **said)
    wait_s = answer_wait_s(said["wait_ms"])
    return Call(
        "POST",
        asked.path,
        asked.body,
        _JSON_TO_BULK,
        decode_received,
        extra_s=wait_s,
        limit_s=asked.limit_s,
    )


def receive_batch(
    places: Places,
    /,
    wanted: Wanted,
    *,
    max: int,
    wait_ms: int,
    lease_ms: int | None = None,
    limit_s: float | None = None,
) -> Call[ReceivedBatch]:
    """Lease up to `max` messages as columns that include every field of a message."""
    check_sendable(max=max, begin=wanted.begin)
    wire = encode_receive(
        max=max,
        wait_ms=wait_ms,
        lease_ms=lease_ms,
        group=wanted.group,
        tags=list(wanted.tags) or None,
        tags_mode=wanted.tags_mode if wanted.tags else None,
        ids=list(wanted.ids) or None,
        begin=wanted.begin,
        consumer=wanted.consumer or process_name(),
        columns=ALL_COLUMNS,
    )
    path = path_of("receive", places, wanted.topic)
    wait_s = answer_wait_s(wait_ms)
    return Call("POST", path, wire, BULK_FORM, decode_received, extra_s=wait_s, limit_s=limit_s)


def ack_and_receive_batch(
    places: Places, /, wanted: Wanted, receipts: Sequence[str], *, max: int, lease_ms: int
) -> Call[tuple[list[str], ReceivedBatch]]:
    """Ack by receipts, and lease up to `max` messages that are ready now, as columns."""
    asked = request(
        "ackAndReceive",
        places,
        wanted.topic,
        receipts=list(receipts),
        max=max,
        lease_ms=lease_ms,
        group=wanted.group,
        tags=list(wanted.tags) or None,
        tags_mode=wanted.tags_mode if wanted.tags else None,
        begin=wanted.begin,
        consumer=wanted.consumer or process_name(),
        columns=ALL_COLUMNS,
    )
    return Call("POST", asked.path, asked.body, _JSON_TO_BULK, decode_acked_and_received)


def peek(
    places: Places, /, topic: str, *, max: int = 1, **members: Any
) -> Call[list[dict[str, Any]]]:
    """Return ready messages without leasing them."""
    call = request("peek", places, topic, max=max, **members)
    return call.read(lambda answer: list(answer["messages"]))


def settle(
    places: Places, /, topic: str, verb: Verb, receipts: Sequence[str], **members: Any
) -> Call[list[str]]:
    """Ack, nack or extend by receipts. Result per receipt: done, gone or unknown."""
    check_word("verb", verb, VERBS)
    call = request(_call_of(verb), places, topic, receipts=list(receipts), **members)
    return call.read(lambda answer: list(answer["results"]))


def settle_forced(
    places: Places, /, topic: str, verb: Verb, ids: Sequence[str], **members: Unpack[SettleKeywords]
) -> Call[list[str]]:
    """Ack, nack or extend by id, no matter which consumer holds the lease."""
    check_word("verb", verb, VERBS)
    check_keywords("settle_forced", members, SettleKeywords)
    rest = in_ms(members, "delay", "lease")
    call = request(_call_of(verb), places, topic, ids=list(ids), force=True, **rest)
    return call.read(lambda answer: list(answer["results"]))


def settle_columns(
    places: Places,
    /,
    topic: str,
    verb: Verb,
    lease: int,
    refs: Numbers | None = None,
    **members: Unpack[SettleMembers],
) -> Call[SettleAnswer]:
    """Ack, nack or extend refs of a lease; without refs the whole lease but `except_refs`."""
    check_word("verb", verb, VERBS)
    check_sendable(delay_ms=members.get("delay_ms"), lease_ms=members.get("lease_ms"))
    limit_s, rest = split_limit(members)
    wire = encode_settle(lease, refs, **rest)
    path = path_of(_call_of(verb), places, topic)
    return Call("POST", path, wire, BULK_FORM, decode_settled, limit_s=limit_s)


def _call_of(verb: Verb) -> str:
    """The name of the call in the table of calls, in which `begin` is that of a transaction."""
    return "beginAttempts" if verb == "begin" else verb


def _sent(shape: Mapping[str, Any]) -> Sent:
    return Sent(shape["id"], shape["deliver_at_ms"], shape["result"])
