"""Send in each form: shapes of the answers, merging, idempotence, and what a receive then shows."""

from __future__ import annotations

import base64
import struct
import time
from typing import Any

import msgpack
import pytest

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


def test_all_members(broker: Any, topic: str) -> None:
    """Everything a message may carry comes back as it was."""
    message = {
        "id": "order 7/é?#%&+😀",
        "body_base64": base64.b64encode(b"\xff\x00\xfe").decode(),
        "deliver_at_ms": 5,
        "priority": -7,
        "ttl_ms": 3_600_000,
        "max_retry": 2,
        "tags": ["red", "ünïcode"],
        "key": "customer 5",
        "headers": {"traceparent": "00-abc", "é": "ü"},
        "merge": "keep",
    }
    sent = broker.post(f"/v1/topics/{topic}/messages", message)
    assert sent["id"] == message["id"]
    assert sent["deliver_at_ms"] > 5, "a past time means now"
    (got,) = receive(broker, topic)
    assert "body" not in got
    for name in ("id", "body_base64", "priority", "tags", "key", "headers"):
        assert got[name] == message[name]


def test_array(broker: Any, topic: str) -> None:
    """An array is answered in its order."""
    messages = [{"body": f"b{n}", "id": f"i{n}", "delay_ms": n} for n in range(50)]
    answer = broker.post(f"/v1/topics/{topic}/messages", messages)
    assert [each["id"] for each in answer["messages"]] == [each["id"] for each in messages]
    assert {each["result"] for each in answer["messages"]} == {"created"}
    got: list[dict[str, Any]] = []
    while len(got) < 50:
        got += receive(broker, topic)
    assert sorted(each["body"] for each in got) == sorted(each["body"] for each in messages)


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


@pytest.mark.parametrize("mode", ["keep", "replace", "reject"])
def test_merge(broker: Any, topic: str, mode: str, assert_problem: Any) -> None:
    """A repeated id is kept, replaced or rejected; alone, in an array and in bulk."""
    path = f"/v1/topics/{topic}/messages"
    first = broker.post(path, {"id": "a", "body": "1", "delay_ms": 3_600_000})
    again = {"id": "a", "body": "2", "delay_ms": 7_200_000, "merge": mode}
    answer = broker.call("POST", path, again)
    array = broker.post(path, [again, {"id": "b", "body": "3", "merge": mode, "delay_ms": 10**7}])
    fields = {"v": 1, "n": 1, "delay_ms": 10**7, "body_size": 1, "bodies": b"4", "merge": mode}
    bulk = broker.bulk(path, fields | {"id": b"a", "id_size": 1}).packed
    code = {"keep": 1, "replace": 2, "reject": 3}[mode]
    word = {"keep": "kept", "replace": "replaced", "reject": "rejected"}[mode]
    if mode == "reject":
        assert assert_problem(answer, 409, "conflict")["id"] == "a"
    else:
        assert answer.json["result"] == word
    assert [each["result"] for each in array["messages"]] == [word, "created"]
    assert bulk["result"] in (code, bytes([code]))
    kept = broker.call("GET", f"{path}/a").json
    assert kept["body"] == ("4" if mode == "replace" else "1")
    if mode != "replace":
        assert kept["deliver_at_ms"] == first["deliver_at_ms"]
        assert answer.json["deliver_at_ms"] == first["deliver_at_ms"]
    assert broker.counts(topic)["waiting"] == 2


def test_idempotency_key(broker: Any, topic: str) -> None:
    """The same key answers what the first send did, whatever became of the message."""
    path = f"/v1/topics/{topic}"
    message = {"body": "x", "delay_ms": 0}
    first = broker.post(f"{path}/messages", message, Idempotency_Key="k1")
    (got,) = receive(broker, topic)
    broker.post(f"{path}/ack", {"receipts": [got["receipt"]]})
    assert broker.post(f"{path}/messages", message, Idempotency_Key="k1") == first
    other = broker.post(f"{path}/messages", message, Idempotency_Key="k2")
    assert other["id"] != first["id"]
    array = [message, message]
    many = broker.post(f"{path}/messages", array, Idempotency_Key="k3")
    assert broker.post(f"{path}/messages", array, Idempotency_Key="k3") == many
    assert broker.call("GET", f"{path}/stats").json["sent"] == 4


def test_idempotency_key_of_another_size(broker: Any, topic: str, assert_problem: Any) -> None:
    """A key that comes back with another number of messages is a conflict."""
    path = f"/v1/topics/{topic}/messages"
    message = {"body": "x", "delay_ms": 3_600_000}
    broker.post(path, message, Idempotency_Key="k")
    answer = broker.call("POST", path, [message] * 2, {"Idempotency-Key": "k"})
    assert_problem(answer, 409, "conflict")
    assert broker.counts(topic)["waiting"] == 1


def test_idempotency_keys_never_collide(broker: Any) -> None:
    """Long names and keys that differ only at their ends are different keys."""
    topic, space = "t" * 200, "n" * 200
    message = {"body": "x", "delay_ms": 3_600_000}
    path = f"/v1/ns/{space}/topics/{topic}/messages"
    ids = {
        broker.post(path, message, Idempotency_Key="k" * 199 + end)["id"] for end in ("a", "b", "c")
    }
    assert len(ids) == 3
    other = broker.post(path.replace("ttt/", "ttu/"), message, Idempotency_Key="k" * 199 + "a")
    assert other["id"] not in ids


def test_idempotency_key_of_a_bulk_body(broker: Any, topic: str, assert_problem: Any) -> None:
    """The header counts for bulk bodies too; beside a producer it would be ambiguous."""
    path = f"/v1/topics/{topic}/messages"
    fields = {"v": 1, "n": 2, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"ab"}
    headers = {"Content-Type": BULK, "Idempotency-Key": "k"}
    first = broker.call("POST", path, msgpack.packb(fields), headers)
    assert broker.call("POST", path, msgpack.packb(fields), headers).body == first.body
    assert broker.counts(topic)["waiting"] == 2
    both = msgpack.packb(fields | {"producer": "p", "sequence": 1})
    assert_problem(broker.call("POST", path, both, headers), 400, "bad_request", "producer")


def test_producer_and_sequence(broker: Any, topic: str, assert_problem: Any) -> None:
    """A repeated (producer, sequence) answers the same bytes and adds nothing."""
    path = f"/v1/topics/{topic}/messages"
    fields = {"v": 1, "n": 2, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"ab"}
    fields |= {"producer": f"p {topic}", "sequence": 7}
    first = broker.bulk(path, fields)
    assert broker.bulk(path, fields).body == first.body
    assert broker.bulk(path, fields | {"sequence": 8}).body != first.body
    assert_problem(broker.bulk(path, fields | {"n": 1, "bodies": b"a"}), 409, "conflict")
    assert broker.counts(topic)["waiting"] == 4


def test_concurrent_singles(broker: Any, topic: str) -> None:
    """Fifty callers at once, merged into few frames: each gets the answer to its own message."""
    path = f"/v1/topics/{topic}/messages"
    broker.call("PUT", f"/v1/topics/{topic}", {})
    calls = [
        broker.later("POST", path, {"id": f"i{n}", "body": f"b{n}", "delay_ms": 3_600_000 + n})
        for n in range(50)
    ]
    for n, call in enumerate(calls):
        answer = call.result(30).json
        assert answer["id"] == f"i{n}"
        assert answer["result"] == "created"
        message = broker.call("GET", f"{path}/i{n}").json
        assert message["body"] == f"b{n}"
        assert message["deliver_at_ms"] == answer["deliver_at_ms"]
    assert broker.counts(topic)["waiting"] == 50


def test_concurrent_singles_of_one_id(broker: Any, topic: str) -> None:
    """Fifty callers with one id make one message: one creates, the others are told it is kept."""
    path = f"/v1/topics/{topic}/messages"
    message = {"id": "same", "body": "x", "delay_ms": 3_600_000}
    calls = [broker.later("POST", path, message) for _ in range(50)]
    results = [call.result(30).json["result"] for call in calls]
    assert sorted(results) == ["created"] + ["kept"] * 49
    assert broker.counts(topic)["waiting"] == 1


def test_bad_single_beside_good_ones(broker: Any, topic: str) -> None:
    """One caller's mistake never touches another's message."""
    path = f"/v1/topics/{topic}/messages"
    calls = [
        broker.later("POST", path, {"body": "x", "delay_ms": -1 if n % 5 == 0 else 3_600_000})
        for n in range(50)
    ]
    assert sorted(call.result(30).status for call in calls) == [200] * 40 + [400] * 10
    assert broker.counts(topic)["waiting"] == 40


def test_acks_parameter(broker: Any, topic: str) -> None:
    """Each documented level is taken."""
    for level in ("leader", "quorum", "all"):
        path = f"/v1/topics/{topic}/messages?acks={level}"
        broker.post(path, {"body": "x", "delay_ms": 3_600_000})
    assert broker.counts(topic)["waiting"] == 3


def test_a_repeat_needs_no_quota(broker: Any, topic: str, assert_problem: Any) -> None:
    """Where a quota is used up, who changes nothing is answered all the same, in every form."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", url, {"quota": {"pending": 1}})
    for name in ("a", "b"):
        broker.call("PUT", f"{url}/groups/{name}", {})
    message = {"body": "x", "id": "m"}
    path = f"{url}/messages"
    assert broker.post(path, message)["result"] == "created"
    assert broker.post(path, message)["result"] == "kept"
    assert broker.post(path, message | {"merge": "replace"})["result"] == "replaced"
    assert broker.post(path, [message])["messages"][0]["result"] == "kept"
    rejected = broker.call("POST", path, message | {"merge": "reject"})
    assert_problem(rejected, 409, "conflict")
    wire = {"v": 1, "n": 1, "delay_ms": 0, "id_size": 1, "id": b"m", "body_size": 1, "bodies": b"y"}
    assert broker.bulk(path, wire).packed["result"] == b"\1"
    for body in (message | {"id": "n"}, [message, message | {"id": "n"}]):
        refused = broker.call("POST", path, body)
        assert assert_problem(refused, 429, "quota")["quota"] == "pending"
        assert int(refused.headers["Retry-After"]) > 0


def test_a_backoff_of_its_own(broker: Any, topic: str) -> None:
    """It wins over the topic's, is shown, and leaves the headers alone, in every form."""
    url = f"/v1/topics/{topic}"
    hour = 3_600_000
    plain = {"body": "x", "headers": {"h": "v"}}
    said = {"first_ms": hour, "factor": 1.5}
    own = plain | {"backoff": said}
    broker.post(f"{url}/messages", own | {"id": "one"})
    broker.post(f"{url}/messages", [{**plain, "id": "none"}, {**own, "id": "two"}])
    bare = {"body": "y", "id": "bare", "backoff": {"first_ms": 0}}
    raw = msgpack.packb(bare)
    broker.call("POST", f"{url}/messages", raw, {"Content-Type": "application/msgpack"})
    # Who waits gets what comes first; who does not, all that was answered.
    wanted = {"columns": ["headers"], "max": 10}
    accept = {"Accept": BULK}
    got = broker.call("POST", f"{url}/receive", wanted, accept).packed
    headers = msgpack.packb({"h": "v"})
    assert got["headers"] == headers * 3
    assert got["headers_size"] == struct.pack("<4H", *[len(headers)] * 3, 0)
    assert got["bodies"] == b"xxxy"
    broker.bulk(f"{url}/nack", {"v": 1, "lease": got["lease"], "all": True})
    now = broker.call("GET", "/v1/clock").json["now_ms"]
    waits = {}
    for name in ("one", "none", "two", "bare"):
        message = broker.call("GET", f"{url}/messages/{name}").json
        waits[name] = message["deliver_at_ms"] - now
        assert message.get("backoff") == {"one": said, "two": said, "bare": {"first_ms": 0}}.get(
            name
        )
        assert message["headers"] == ({} if name == "bare" else {"h": "v"})
    assert hour * 0.8 - 10_000 < waits["one"] <= hour
    assert hour * 0.8 - 10_000 < waits["two"] <= hour
    assert waits["none"] <= 1_000
    assert waits["bare"] <= 0
    (again,) = broker.post(f"{url}/receive", {"ids": ["bare"]})["messages"]
    assert (again["attempts"], again["headers"]) == (2, {})
    listed = broker.call("GET", f"{url}/messages?bodies=true").json["messages"]
    assert {each["id"]: each.get("backoff") for each in listed} == {
        "one": said,
        "two": said,
        "bare": {"first_ms": 0},
        "none": None,
    }
