"""Bad members, table by table: JSON and msgpack bodies that every call must refuse whole.

Each row is sent to a live broker. The answer must be the documented problem that names the
member, and nothing may have been done: the counts of the topic are what they were.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import msgpack
import pytest

YEAR_MS = 366 * 86_400_000
OK = {"body": "x", "delay_ms": 3_600_000}

# name: (message, field)
MESSAGES: dict[str, tuple[Any, str | None]] = {
    "no object but text": ("x", None),
    "no object but a number": (5, None),
    "no object but null": (None, None),
    "no object but true": (True, None),
    "no body": ({"delay_ms": 1}, "body"),
    "empty object": ({}, "body"),
    "body null": ({"body": None}, "body"),
    "body a number": ({"body": 5}, "body"),
    "body a list": ({"body": ["x"]}, "body"),
    "two bodies": ({"body": "x", "body_base64": "eA=="}, "body"),
    "base64 is a number": ({"body_base64": 5}, "body_base64"),
    "base64 has other letters": ({"body_base64": "!!!!"}, "body_base64"),
    "base64 lacks padding": ({"body_base64": "eA"}, "body_base64"),
    "base64 is not ASCII": ({"body_base64": "é" * 4}, "body_base64"),
    "delay a float": (OK | {"delay_ms": 1.5}, "delay_ms"),
    "delay a text": (OK | {"delay_ms": "5"}, "delay_ms"),
    "delay true": (OK | {"delay_ms": True}, "delay_ms"),
    "delay over the horizon": (OK | {"delay_ms": 11 * YEAR_MS}, "delay_ms"),
    "delay over 64 bits": (OK | {"delay_ms": 2**70}, "delay_ms"),
    "delay of all 64 bits": (OK | {"delay_ms": 2**64 - 1}, "delay_ms"),
    "due time negative": ({"body": "x", "deliver_at_ms": -1}, "deliver_at_ms"),
    "due time in seconds": ({"body": "x", "deliver_at_ms": 1_795_600_000}, "deliver_at_ms"),
    "due time over the horizon": ({"body": "x", "deliver_at_ms": 2**62}, "deliver_at_ms"),
    "due time over 64 bits": ({"body": "x", "deliver_at_ms": 10**30}, "deliver_at_ms"),
    "due time and delay": (OK | {"deliver_at_ms": 0}, "delay_ms"),
    "id a number": (OK | {"id": 5}, "id"),
    "id too long": (OK | {"id": "x" * 256}, "id"),
    "id too long in bytes": (OK | {"id": "é" * 128}, "id"),
    "id like the server's": (OK | {"id": "~abc"}, "id"),
    "id with NUL": (OK | {"id": "a\0b"}, "id"),
    "id with a newline": (OK | {"id": "a\nb"}, "id"),
    "id with DEL": (OK | {"id": "a\x7f"}, "id"),
    "id with a C1 control": (OK | {"id": "a\x85"}, "id"),
    "key a number": (OK | {"key": 5}, "key"),
    "key too long": (OK | {"key": "k" * 256}, "key"),
    "priority too small": (OK | {"priority": -(2**31)}, "priority"),
    "priority too large": (OK | {"priority": 2**31}, "priority"),
    "priority a text": (OK | {"priority": "high"}, "priority"),
    "ttl below -1": (OK | {"ttl_ms": -2}, "ttl_ms"),
    "ttl too large": (OK | {"ttl_ms": 2**53 + 1}, "ttl_ms"),
    "max_retry negative": (OK | {"max_retry": -1}, "max_retry"),
    "max_retry too large": (OK | {"max_retry": 65_535}, "max_retry"),
    "tags a text": (OK | {"tags": "a"}, "tags"),
    "tags of numbers": (OK | {"tags": [1]}, "tags"),
    "tag empty": (OK | {"tags": [""]}, "tags"),
    "tag too long": (OK | {"tags": ["t" * 65]}, "tags"),
    "tag with a newline": (OK | {"tags": ["a\nb"]}, "tags"),
    "too many tags": (OK | {"tags": [str(n) for n in range(17)]}, "tags"),
    "headers a list": (OK | {"headers": []}, "headers"),
    "headers of numbers": (OK | {"headers": {"a": 1}}, "headers"),
    "headers too large": (OK | {"headers": {"a": "x" * 16_384}}, "headers"),
    "backoff a number": (OK | {"backoff": 5}, "backoff"),
    "backoff a list": (OK | {"backoff": []}, "backoff"),
    "backoff of what is not": (OK | {"backoff": {"first": 1}}, "first"),
    "backoff negative": (OK | {"backoff": {"first_ms": -1}}, "first_ms"),
    "backoff of fractions": (OK | {"backoff": {"max_ms": 1.5}}, "max_ms"),
    "backoff too long": (OK | {"backoff": {"max_ms": 2**53}}, "max_ms"),
    "backoff that shrinks": (OK | {"backoff": {"factor": 0.5}}, "factor"),
    "backoff of texts": (OK | {"backoff": {"factor": "2"}}, "factor"),
    "backoff all jitter": (OK | {"backoff": {"jitter": 1.1}}, "jitter"),
    "merge unknown": (OK | {"merge": "append"}, "merge"),
    "merge a list": (OK | {"merge": ["keep"]}, "merge"),
    "merge an object": (OK | {"merge": {}}, "merge"),
    "unknown member": (OK | {"colour": "red"}, "colour"),
    "backwards member": (OK | {"Body": "x"}, "Body"),
    "member of 5,000 letters": (OK | {"m" * 5_000: 1}, "m" * 64),
}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("form", ["json", "array", "msgpack"])
def test_send_refuses(broker: Any, topic: str, assert_problem: Any, name: str, form: str) -> None:
    """A bad message is refused alone, in an array (naming the item) and as msgpack."""
    message, field = MESSAGES[name]
    path = f"/v1/topics/{topic}/messages"
    if form == "json":
        answer = broker.call("POST", path, json.dumps(message).encode())
        assert_problem(answer, 400, "bad_request", field)
        if field == "id":
            assert "item" not in answer.json, "there is but one message"
    elif form == "array":
        answer = broker.call("POST", path, [OK, OK, message])
        assert_problem(answer, 400, "bad_request", field, item=2)
    else:
        try:
            wire = msgpack.packb(message)
        except OverflowError:
            wire = msgpack.packb(message | {"delay_ms": 1e30, "deliver_at_ms": None})
            field = "delay_ms"
        answer = broker.call("POST", path, wire, {"Content-Type": "application/msgpack"})
        assert_problem(answer, 400, "bad_request", field)
    assert broker.counts(topic) is None, "a refused send makes no topic"


BODIES = {
    "not JSON": b"{",
    "a bare word": b"hello",
    "NaN": b'{"body":"x","delay_ms":NaN}',
    "Infinity": b'{"body":"x","delay_ms":Infinity}',
    "single quotes": b"{'body':'x'}",
    "trailing comma": b'{"body":"x",}',
    "two documents": b'{"body":"x"}{"body":"y"}',
    "bad UTF-8": b'{"body":"\xff\xfe"}',
    "a lone surrogate": b'{"body":"\\ud800"}',
    "a lone surrogate in an id": b'{"body":"x","id":"\\udc00"}',
    "a raw control character": b'{"body":"a\x01"}',
    "UTF-16": '{"body":"x"}'.encode("utf-16"),
    "deep lists": b"[" * 100_000,
    "deep closed lists": b"[" * 5_000 + b"]" * 5_000,
    "deep objects": b'{"a":' * 100_000,
    "deep body": b'{"body":' + b"[" * 500 + b"]" * 500 + b"}",
    "empty": b"",
    "spaces": b"   ",
    "empty array": b"[]",
    "array of arrays": b"[[]]",
    "NUL": b"\0",
}
CALLS = ("messages", "receive", "peek", "ack", "nack", "reject", "extend", "begin")


@pytest.mark.parametrize("name", BODIES)
def test_unreadable_json(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """What is no JSON is refused by every call that reads a body (empty means {} where legal)."""
    for call in CALLS:
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", BODIES[name])
        if name == "empty" and call in ("receive", "peek"):
            assert answer.json["messages"] == []
        else:
            assert_problem(answer, 400, "bad_request")
    broker.post(f"/v1/topics/{topic}/messages", OK | {"id": "a"})
    for call in ("messages:cancel", "messages:reschedule"):
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", BODIES[name])
        assert_problem(answer, 400, "bad_request")
    answer = broker.call("PATCH", f"/v1/topics/{topic}/messages/a", BODIES[name])
    assert_problem(answer, 400, "bad_request")
    if name != "empty":
        answer = broker.call("PUT", f"/v1/topics/{topic}", BODIES[name])
        assert_problem(answer, 400, "bad_request")
    assert broker.counts(topic)["waiting"] == 1


def test_duplicate_members_last_wins(broker: Any, topic: str) -> None:
    """A member given twice counts once, the later one, as HTTP.md says: refusing it would take a
    parser of a tenth of the speed.
    """
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", b'{"body":"first","body":"second","delay_ms":0}')
    assert broker.post(f"{path}/receive", {"wait_ms": 5_000})["messages"][0]["body"] == "second"


PACKED = {
    "truncated": msgpack.packb(OK)[:-3],
    "trailing bytes": msgpack.packb(OK) + b"\x01",
    "integer keys": msgpack.packb({1: "x"}),
    "bytes key": msgpack.packb({b"body": "x", b"colour": 1}),
    "bytes key beside good ones": msgpack.packb({"body": "x", b"colour": 1}),
    "bad UTF-8 text": b"\x81\xa4body\xa1\xff",
    "reserved byte": b"\xc1",
    "deep": b"\x91" * 100_000,
    "length of 4 GiB": b"\xdd\xff\xff\xff\xff",
    "map of 4 GiB": b"\xdf\xff\xff\xff\xff",
    "extension": b"\xd4\x05\x00",
    "broken timestamp": b"\xc7\x03\xff\x00\x00\x00",
    "NaN": msgpack.packb({"body": "x", "delay_ms": float("nan")}),
    "bytes as id": msgpack.packb(OK | {"id": b"abc"}),
    "bytes as tag": msgpack.packb(OK | {"tags": [b"a"]}),
    "bytes in headers": msgpack.packb(OK | {"headers": {b"a": b"b"}}),
}


@pytest.mark.parametrize("name", PACKED)
def test_unreadable_msgpack(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """What is no msgpack, or has keys that are no texts, is refused by every call."""
    headers = {"Content-Type": "application/msgpack"}
    broker.post(f"/v1/topics/{topic}/messages", OK | {"id": "a"})
    for call in (*CALLS, "messages:cancel", "messages:reschedule"):
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", PACKED[name], headers)
        assert_problem(answer, 400, "bad_request")
    for method, path in (("PUT", ""), ("PATCH", "/messages/a")):
        answer = broker.call(method, f"/v1/topics/{topic}{path}", PACKED[name], headers)
        assert_problem(answer, 400, "bad_request")
    assert broker.counts(topic)["waiting"] == 1


def test_a_word_may_be_anything_else(broker: Any, topic: str, assert_problem: Any) -> None:
    """Also so deep that to write it into the error takes more calls than Python has."""
    deep = b'{"tags_mode":' + b"[" * 1_020 + b"]" * 1_020 + b"}"
    headers = {"Content-Type": "application/json"}
    answer = broker.call("POST", f"/v1/topics/{topic}/receive", deep, headers)
    assert_problem(answer, 400, "bad_request", "tags_mode")


# (call, members, field)
SETTINGS: list[tuple[str, Any, str | None]] = [
    ("receive", {"max": 0}, "max"),
    ("receive", {"max": -1}, "max"),
    ("receive", {"max": 10_001}, "max"),
    ("receive", {"max": "5"}, "max"),
    ("receive", {"max": 1.5}, "max"),
    ("receive", {"max": True}, "max"),
    ("receive", {"max": 10**40}, "max"),
    ("receive", {"wait_ms": -1}, "wait_ms"),
    ("receive", {"wait_ms": 60_001}, "wait_ms"),
    ("receive", {"wait_ms": [1]}, "wait_ms"),
    ("receive", {"lease_ms": 0}, "lease_ms"),
    ("receive", {"lease_ms": 43_200_001}, "lease_ms"),
    ("receive", {"columns": "key"}, "columns"),
    ("receive", {"columns": ["colour"]}, "columns"),
    ("receive", {"columns": [["key"]]}, "columns"),
    ("receive", {"columns": [{}]}, "columns"),
    ("receive", {"columns": [None]}, "columns"),
    ("receive", {"tags": ["a"], "tags_mode": "some"}, "tags_mode"),
    ("receive", {"tags": ["a"], "tags_mode": ["any"]}, "tags_mode"),
    ("receive", {"tags": [], "tags_mode": "some"}, "tags_mode"),
    ("receive", {"tags": "a"}, "tags"),
    ("receive", {"tags": [1]}, "tags"),
    ("receive", {"tags": {"a": 1}}, "tags"),
    ("receive", {"tags": [""]}, "tags"),
    ("receive", {"tags": ["a\nb"]}, "tags"),
    ("receive", {"tags": [f"t{n}" for n in range(17)]}, "tags"),
    ("receive", {"wait": 5}, "wait"),
    ("receive", [], None),
    ("peek", {"max": 0}, "max"),
    ("peek", {"colour": 1}, "colour"),
    ("ack", {}, "receipts"),
    ("ack", {"receipts": None}, "receipts"),
    ("ack", {"receipts": "a" * 32}, "receipts"),
    ("ack", {"receipts": [], "ids": []}, "receipts"),
    ("ack", {"receipts": {"a": 1}}, "receipts"),
    ("ack", {"ids": ["a"]}, "force"),
    ("ack", {"ids": ["a"], "force": "true"}, "force"),
    ("ack", {"ids": [1], "force": True}, "ids"),
    ("ack", {"receipts": [], "colour": 1}, "colour"),
    ("ack", {"receipts": ["0" * 32] * 10_001}, "receipts"),
    ("nack", {"receipts": [], "delay_ms": -1.5}, "delay_ms"),
    ("nack", {"receipts": [], "delay_ms": 11 * YEAR_MS}, "delay_ms"),
    ("nack", {"receipts": [], "delay_ms": "1"}, "delay_ms"),
    ("extend", {"receipts": [], "lease_ms": -1}, "lease_ms"),
    ("extend", {"receipts": [], "lease_ms": 43_200_001}, "lease_ms"),
    ("messages:cancel", {}, "ids"),
    ("messages:cancel", {"ids": []}, "ids"),
    ("messages:cancel", {"ids": "a"}, "ids"),
    ("messages:cancel", {"ids": [1]}, "ids"),
    ("messages:cancel", {"ids": ["a"] * 10_001}, "ids"),
    ("messages:cancel", {"ids": ["a"], "colour": 1}, "colour"),
    ("messages:cancel", {"ids": ["a"], "force": "yes"}, "force"),
    ("messages:cancel", [], None),
    ("messages:reschedule", {"ids": ["a"]}, "deliver_at_ms"),
    ("messages:reschedule", {"ids": ["a"], "deliver_at_ms": -1}, "deliver_at_ms"),
    ("messages:reschedule", {"ids": ["a"], "deliver_at_ms": 2**62}, "deliver_at_ms"),
    ("messages:reschedule", {"ids": ["a"], "deliver_at_ms": 0, "delay_ms": 1}, "delay_ms"),
]


@pytest.mark.parametrize("row", range(len(SETTINGS)))
def test_calls_refuse(broker: Any, topic: str, assert_problem: Any, row: int) -> None:
    """Parameters out of range, of a wrong type or unknown are refused and change nothing."""
    call, members, field = SETTINGS[row]
    broker.post(f"/v1/topics/{topic}/messages", {"id": "a", "body": "x", "delay_ms": 0})
    broker.post(f"/v1/topics/{topic}/messages", OK | {"id": "b"})
    before = broker.counts(topic)
    answer = broker.call("POST", f"/v1/topics/{topic}/{call}", members)
    assert_problem(answer, 400, "bad_request", field)
    # One of the two may have become ready meanwhile.
    but = {"waiting": 0, "ready": 0}
    assert broker.counts(topic) | but == before | but


@pytest.mark.parametrize("receipt", ["x", "0" * 16 + "f" * 16, 5, None, ["0" * 32]])
def test_garbage_receipts(broker: Any, topic: str, assert_problem: Any, receipt: Any) -> None:
    """What no receive ever gave is refused, naming the item; good ones beside it stay untouched.
    tests/broker/calls/test_receipts.py has every form of garbage.
    """
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": 0})
    good = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000})["messages"][0]["receipt"]
    for call in ("ack", "nack", "reject", "extend", "begin"):
        members = {"receipts": [good, receipt]}
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", members)
        assert_problem(answer, 400, "bad_request", "receipts", item=1)
    assert broker.counts(topic)["leased"] == 1


@pytest.mark.parametrize(
    ("group", "status", "code"),
    [("other", 404, "unknown"), (5, 400, "bad_request"), ({"a": 1}, 400, "bad_request")],
)
def test_unknown_group(
    broker: Any, topic: str, assert_problem: Any, group: Any, status: int, code: str
) -> None:
    """Naming a group that is not there must not act on another."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": 0})
    receive = f"/v1/topics/{topic}/receive"
    receipt = broker.post(receive, {"wait_ms": 5_000, "group": "default"})["messages"][0]["receipt"]
    assert_problem(broker.call("POST", receive, {"group": group}), status, code, "group")
    for call in ("ack", "nack", "reject", "extend", "begin"):
        members = {"receipts": [receipt], "group": group}
        answer = broker.call("POST", f"/v1/topics/{topic}/{call}", members)
        assert_problem(answer, status, code, "group")
    assert broker.counts(topic)["leased"] == 1


TOPIC_SETTINGS: list[tuple[Any, str | None]] = [
    ([], None),
    (5, None),
    ({"colour": 1}, "colour"),
    ({"merge": "append"}, "merge"),
    ({"merge": []}, "merge"),
    ({"ttl_ms": -2}, "ttl_ms"),
    ({"ttl_ms": "1"}, "ttl_ms"),
    ({"max_retry": 65_535}, "max_retry"),
    ({"max_retry": True}, "max_retry"),
    ({"lease_ms": 0}, "lease_ms"),
    ({"lease_ms": 43_200_001}, "lease_ms"),
    ({"ended_keep_ms": -1}, "ended_keep_ms"),
    ({"dead_keep_ms": 2**60}, "dead_keep_ms"),
    ({"backoff": 5}, "backoff"),
    ({"backoff": {"first": 1}}, "backoff"),
    ({"backoff": {"first_ms": -1}}, "backoff"),
    ({"backoff": {"first_ms": 1.5}}, "backoff"),
    ({"backoff": {"factor": 0}}, "backoff"),
    ({"backoff": {"factor": 1e300}}, "backoff"),
    ({"backoff": {"jitter": 2}}, "backoff"),
    ({"backoff": {"jitter": "x"}}, "backoff"),
    ({"backoff": {"jitter": [1]}}, "backoff"),
]


@pytest.mark.parametrize("row", range(len(TOPIC_SETTINGS)))
def test_topic_settings_refused(broker: Any, topic: str, assert_problem: Any, row: int) -> None:
    """A PUT with bad settings neither makes a topic nor changes one."""
    members, field = TOPIC_SETTINGS[row]
    path = f"/v1/topics/{topic}"
    body = json.dumps(members).encode()
    assert_problem(broker.call("PUT", path, body), 400, "bad_request", field)
    assert broker.call("GET", path).status == 404
    made = broker.call("PUT", path, {"max_retry": 3}).json
    assert_problem(broker.call("PUT", path, body), 400, "bad_request", field)
    assert broker.call("GET", path).json == made


PATCHES: list[tuple[Any, str | None]] = [
    ({}, "deliver_at_ms"),
    ([], None),
    ({"deliver_at_ms": -1}, "deliver_at_ms"),
    ({"deliver_at_ms": 2**63}, "deliver_at_ms"),
    ({"deliver_at_ms": 2**62}, "deliver_at_ms"),
    ({"deliver_at_ms": "now"}, "deliver_at_ms"),
    ({"deliver_at_ms": 1_795_600_000}, "deliver_at_ms"),
    ({"delay_ms": 11 * YEAR_MS}, "delay_ms"),
    ({"delay_ms": 1, "deliver_at_ms": 0}, "delay_ms"),
    ({"priority": 2**31}, "priority"),
    ({"priority": None}, "deliver_at_ms"),
    ({"body": "y"}, "body"),
]


@pytest.mark.parametrize("row", range(len(PATCHES)))
def test_patch_refused(broker: Any, topic: str, assert_problem: Any, row: int) -> None:
    """A bad PATCH leaves the message as it was."""
    members, field = PATCHES[row]
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, OK | {"id": "a"})
    before = broker.call("GET", f"{path}/a").json
    assert_problem(broker.call("PATCH", f"{path}/a", members), 400, "bad_request", field)
    assert broker.call("GET", f"{path}/a").json == before


def test_one_bad_item_refuses_the_array(broker: Any, topic: str, assert_problem: Any) -> None:
    """An array is judged whole: a bad last item keeps the good ones out."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, OK)
    array = [OK] * 100 + [OK | {"tags": ["a"] * 17}]
    assert_problem(broker.call("POST", path, array), 400, "bad_request", "tags", item=100)
    mixed = [OK | {"merge": "keep"}, OK | {"merge": "replace"}]
    assert_problem(broker.call("POST", path, mixed), 400, "bad_request", "merge")
    assert_problem(broker.call("POST", path, [OK] * 10_001), 400, "bad_request")
    assert broker.counts(topic)["waiting"] == 1


def test_edges_that_are_legal(broker: Any, topic: str) -> None:
    """The last legal value of each member is taken: the tables above begin right behind it."""
    now_ms = int(time.time() * 1000)
    message = {
        "body_base64": base64.b64encode(bytes(range(256))).decode(),
        "deliver_at_ms": now_ms + 10 * YEAR_MS - 60_000,
        "id": "é" * 127 + "x",
        "key": "k" * 255,
        "priority": -(2**31) + 1,
        "ttl_ms": 2**53,
        "max_retry": 65_534,
        "tags": [f"{n:064}" for n in range(16)],
        "headers": {"a": "x" * 16_000},
        "merge": "reject",
    }
    sent = broker.post(f"/v1/topics/{topic}/messages", message)
    assert sent == {
        "id": message["id"],
        "deliver_at_ms": message["deliver_at_ms"],
        "result": "created",
    }
