"""Send in each form: shapes of the answers, merging, idempotence, and what a receive then shows."""

from __future__ import annotations

import base64
import struct
import time
from typing import Any

import msgpack

BULK = "application/vnd.delaylog.batch"
MSGPACK = "application/msgpack"


def receive(broker: Any, topic: str, **members: Any) -> list[dict[str, Any]]:
    """Messages of one receive that waits."""
    got = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000, "max": 100, **members})
    return list(got["messages"])


def test_one(broker: Any, topic: str) -> None:
    """A bare message: a server-made id, the broker's due time, `created`; all members come back."""
    before = int(time.time() * 1000)
    sent = broker.post(f"/v1/topics/{topic}/messages", {"body": "hé"})
    assert sent.keys() == {"id", "deliver_at_ms", "result"}
    assert sent["id"].startswith("~")
    assert len(sent["id"]) == 17
    assert sent["result"] == "created"
    assert before - 5 <= sent["deliver_at_ms"] <= int(time.time() * 1000) + 5
    (got,) = receive(broker, topic)
    assert got.pop("lease_until_ms") > before
    assert len(got.pop("receipt")) == 32
    assert got == {
        "id": sent["id"],
        "body": "hé",
        "deliver_at_ms": sent["deliver_at_ms"],
        "attempts": 1,
        "priority": 0,
        "tags": [],
        "key": None,
        "headers": {},
    }


def test_msgpack(broker: Any, topic: str) -> None:
    """msgpack has the same members, bodies are bytes both ways; Accept decides the answer."""
    path = f"/v1/topics/{topic}"
    wire = msgpack.packb([{"body": b"\xff\x00"}, {"body": "text"}, {"body_base64": "AA=="}])
    headers = {"Content-Type": MSGPACK}
    answer = broker.call("POST", f"{path}/messages", wire, headers)
    assert answer.headers["Content-Type"] == MSGPACK
    assert [each["result"] for each in answer.packed["messages"]] == ["created"] * 3
    wire = msgpack.packb({"max": 10, "wait_ms": 20_000})
    got = broker.call("POST", f"{path}/receive", wire, headers).packed
    assert sorted(each["body"] for each in got["messages"]) == [b"\x00", b"text", b"\xff\x00"]
    wire = msgpack.packb({"receipts": [each["receipt"] for each in got["messages"]]})
    answer = broker.call("POST", f"{path}/ack", wire, headers | {"Accept": "application/json"})
    assert answer.json == {"results": ["done"] * 3}
    answer = broker.call("GET", f"{path}/stats", headers={"Accept": MSGPACK})
    assert answer.packed["counts"]["acked"] == 3


def test_bulk(broker: Any, topic: str) -> None:
    """A bulk send and receive carry every column."""
    path = f"/v1/topics/{topic}"
    packed = msgpack.packb({"h": "v"})
    fields = {
        "v": 1,
        "n": 3,
        "delay_ms": 0,
        "body_size": struct.pack("<3I", 0, 2, 3),
        "bodies": b"\xff\xfeabc",
        "id_size": struct.pack("<3H", 2, 0, 3),
        "id": b"i1" + "é3".encode(),
        "key_size": 1,
        "key": b"kkl",
        "tags_size": struct.pack("<3H", 0, 3, 1),
        "tags": b"a\nbc",
        "headers_size": struct.pack("<3H", 0, len(packed), 0),
        "headers": packed,
        "priority": struct.pack("<3i", 1, -2, 3),
        "ttl_ms": -1,
        "max_retry": 5,
    }
    answer = broker.bulk(f"{path}/messages", fields)
    assert answer.headers["Content-Type"] == BULK
    sent = answer.packed
    assert sent["v"] == 1
    assert sent["n"] == 3
    assert sent["result"] == 0
    assert len(sent["refs"]) == len(sent["deliver_at_ms"]) == 24
    rows = {}
    while len(rows) < 3:
        ask = {"max": 10, "wait_ms": 20_000, "columns": ["key", "tags", "headers", "priority"]}
        got = broker.call("POST", f"{path}/receive", ask, {"Accept": BULK}).packed
        for row in unpack_rows(got):
            rows[row["ref"]] = row
        broker.bulk(f"{path}/ack", {"v": 1, "n": 0, "lease": got["lease"], "all": True})
    refs = struct.unpack("<3q", sent["refs"])
    assert [rows[ref]["bodies"] for ref in refs] == [b"", b"\xff\xfe", b"abc"]
    assert [rows[ref]["id"] for ref in refs] == [b"i1", b"", "é3".encode()]
    assert [rows[ref]["key"] for ref in refs] == [b"k", b"k", b"l"]
    assert [rows[ref]["tags"] for ref in refs] == [b"", b"a\nb", b"c"]
    assert [rows[ref]["headers"] for ref in refs] == [b"", packed, b""]
    assert [rows[ref]["priority"] for ref in refs] == [1, -2, 3]
    assert broker.counts(topic)["acked"] == 3


def unpack_rows(got: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a bulk receive, read by the document and nothing else."""
    n = got["n"]

    def numbers(name: str, letter: str) -> list[int]:
        value = got[name]
        return (
            [value] * n if isinstance(value, int) else list(struct.unpack(f"<{n}{letter}", value))
        )

    columns: dict[str, list[Any]] = {
        "ref": numbers("refs", "q"),
        "deliver_at_ms": numbers("deliver_at_ms", "q"),
        "attempts": numbers("attempts", "H"),
        "priority": numbers("priority", "i"),
    }
    texts = [("bodies", "body_size", "I")]
    texts += [(name, f"{name}_size", "H") for name in ("id", "key", "tags", "headers")]
    for name, size_name, letter in texts:
        at, values = 0, []
        for size in numbers(size_name, letter):
            values.append(got[name][at : at + size])
            at += size
        assert at == len(got[name])
        columns[name] = values
    return [{name: values[row] for name, values in columns.items()} for row in range(n)]


def test_bulk_into_json(broker: Any, topic: str) -> None:
    """What came in bulk goes out as JSON with all its members."""
    fields = {
        "v": 1,
        "n": 2,
        "delay_ms": 0,
        "body_size": 2,
        "bodies": b"ab\xff\xfe",
        "id_size": 2,
        "id": b"i1i2",
        "headers_size": 1,
        "headers": b"\x80\x80",
        "tags_size": 3,
        "tags": b"a\nbc\nd",
    }
    broker.bulk(f"/v1/topics/{topic}/messages", fields)
    got: dict[str, Any] = {}
    while len(got) < 2:
        got |= {each["id"]: each for each in receive(broker, topic)}
    assert got["i1"]["body"] == "ab"
    assert got["i2"]["body_base64"] == base64.b64encode(b"\xff\xfe").decode()
    assert got["i1"]["tags"] == ["a", "b"]
    assert got["i1"]["headers"] == {}


def test_a_backoff_leaves_the_headers_alone(broker: Any, topic: str) -> None:
    """They share a column of bulk bodies: some messages have both, one of them, or neither."""
    url = f"/v1/topics/{topic}"
    said = {"first_ms": 3_600_000, "factor": 1.5}
    plain = {"body": "x", "headers": {"h": "v"}}
    messages = [plain | {"id": "both", "backoff": said}, plain | {"id": "headers"}]
    bare = {"body": "y", "id": "backoff", "backoff": {"first_ms": 0}}
    broker.post(f"{url}/messages", messages)
    broker.call("POST", f"{url}/messages", msgpack.packb(bare), {"Content-Type": MSGPACK})
    broker.post(f"{url}/messages", {"body": "z", "id": "neither"})
    wanted = {"columns": ["headers"], "max": 10}
    got = broker.call("POST", f"{url}/receive", wanted, {"Accept": BULK}).packed
    headers = msgpack.packb({"h": "v"})
    assert got["headers"] == headers * 2
    assert got["headers_size"] == struct.pack("<4H", *[len(headers)] * 2, 0, 0)
    broker.bulk(f"{url}/nack", {"v": 1, "lease": got["lease"], "all": True})
    (again,) = broker.post(f"{url}/receive", {"ids": ["backoff"]})["messages"]
    assert (again["attempts"], again["headers"]) == (2, {})
    listed = broker.all_pages(f"{url}/messages", bodies="true")
    assert {each["id"]: (each["headers"], each.get("backoff")) for each in listed} == {
        "both": ({"h": "v"}, said),
        "headers": ({"h": "v"}, None),
        "backoff": ({}, {"first_ms": 0}),
        "neither": ({}, None),
    }


def test_a_repeated_id_is_told_in_each_form(broker: Any, topic: str, assert_problem: Any) -> None:
    """Also where a quota is used up: who adds nothing needs none."""
    path = f"/v1/topics/{topic}/messages"
    broker.call("PUT", f"/v1/topics/{topic}", {"quota": {"pending": 1}})
    message = {"id": "a", "body": "1"}
    first = broker.post(path, message)
    wire = {"v": 1, "n": 1, "delay_ms": 0, "id_size": 1, "id": b"a", "body_size": 1, "bodies": b"2"}
    for code, (mode, word) in enumerate((("keep", "kept"), ("replace", "replaced")), 1):
        again = broker.post(path, message | {"merge": mode})
        assert again == {**first, "result": word, "deliver_at_ms": again["deliver_at_ms"]}
        assert broker.post(path, [message | {"merge": mode}])["messages"][0]["result"] == word
        assert broker.bulk(path, wire | {"merge": mode}).packed["result"] in (code, bytes([code]))
    rejected = broker.call("POST", path, message | {"merge": "reject"})
    assert assert_problem(rejected, 409, "conflict")["id"] == "a"
    assert broker.bulk(path, wire | {"merge": "reject"}).packed["result"] in (3, b"\3")
    for body in (message | {"id": "n"}, [message, message | {"id": "n"}]):
        refused = broker.call("POST", path, body)
        assert assert_problem(refused, 429, "quota")["quota"] == "pending"
        assert int(refused.headers["Retry-After"]) > 0
    assert broker.call("GET", f"{path}/a").json["body"] == "2"


def test_of_many_callers_at_once_each_gets_its_own_answer(broker: Any, topic: str) -> None:
    """They are merged into few frames; a mistake among them harms nobody else."""
    path = f"/v1/topics/{topic}/messages"
    messages = [
        {"id": f"i{n}", "body": f"b{n}", "delay_ms": 3_600_000 + n}
        | ({"delay_ms": 2**60} if n % 5 == 0 else {"id": "same"} if n % 5 == 1 else {})
        for n in range(50)
    ]
    answers = [call.result(30) for call in [broker.later("POST", path, m) for m in messages]]
    assert [each.status for each in answers] == [400 if n % 5 == 0 else 200 for n in range(50)]
    results = []
    for n, answer in enumerate(answers):
        if n % 5 == 1:
            results.append(answer.json["result"])
        elif n % 5:
            message = broker.call("GET", f"{path}/i{n}").json
            assert (answer.json["id"], answer.json["result"]) == (f"i{n}", "created")
            assert message["body"] == f"b{n}"
            assert message["deliver_at_ms"] == answer.json["deliver_at_ms"]
    assert sorted(results) == ["created"] + ["kept"] * 9
    assert broker.counts(topic)["waiting"] == 31
