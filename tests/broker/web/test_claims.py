"""Claims over HTTP: each call's answer, each form of the rows, each refusal, and a kill.

Rows are read as Arrow by the library that Spark uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest

from delaylog.broker.calls.forms.arrow_stream import ARROW
from tests.broker.web.test_fast_lane import request
from tests.waiting import await_that

BULK = "application/vnd.delaylog.batch"
ROW = {
    "value": pa.binary(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "id": pa.string(),
    "key": pa.string(),
    "topic": pa.string(),
    "priority": pa.int32(),
    "attempts": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "ref": pa.int64(),
}


def send(broker: Any, topic: str, n: int, size: int = 4) -> None:
    """Numbered messages that are due."""
    fields = {"v": 1, "n": n, "delay_ms": 0, "body_size": size}
    fields["bodies"] = b"".join(b"%0*d" % (size, k) for k in range(n))
    assert broker.bulk(f"/v1/topics/{topic}/messages", fields).status == 200


def make(broker: Any, topic: str, name: str = "c1", **members: Any) -> Any:
    return broker.post(f"/v1/topics/{topic}/claims/{name}", members)


def rows(broker: Any, topic: str, query: str = "", name: str = "c1") -> pa.Table:
    """A range as Arrow."""
    path = f"/v1/topics/{topic}/claims/{name}/rows?{query}"
    answer = broker.call("GET", path, None, {"Accept": ARROW})
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == ARROW
    return pa.ipc.open_stream(answer.body).read_all()


def test_its_life(broker: Any, topic: str) -> None:
    """Made, made again, read, extended, acked, acked again."""
    send(broker, topic, 12)
    before = int(time.time() * 1000)
    made = make(broker, topic, max=10, lease_ms=60_000)
    assert before + 60_000 <= made.pop("lease_until_ms") <= before + 90_000
    assert made == {"claim": "c1", "group": "default", "n": 10, "state": "open"}
    send(broker, topic, 3)
    again = make(broker, topic, max=1_000, lease_ms=1)
    assert again["n"] == 10
    path = f"/v1/topics/{topic}/claims"
    assert broker.call("GET", path).json == {"claims": [again]}
    assert broker.call("GET", f"{path}/c1").json == again
    bodies = [b"%04d" % k for k in range(10)]
    for _ in range(2):
        assert rows(broker, topic)["value"].to_pylist() == bodies
    extended = broker.post(f"{path}/c1/extend", {"lease_ms": 3_600_000})
    assert extended["result"] == "done"
    assert extended["lease_until_ms"] > again["lease_until_ms"] + 3_000_000
    one = rows(broker, topic)["id"][7].as_py()
    shown = broker.call("GET", f"/v1/topics/{topic}/messages/{one}").json
    assert (shown["state"], shown["lease_until_ms"]) == ("leased", extended["lease_until_ms"])
    assert broker.counts(topic)["leased"] == 10
    acked = {"claim": "c1", "group": "default", "n": 10, "state": "acked", "lease_until_ms": None}
    assert broker.post(f"{path}/c1/ack") == {**acked, "result": "done"}
    assert broker.post(f"{path}/c1/ack", {"group": "default"}) == {**acked, "result": "already"}
    assert broker.call("GET", f"{path}/c1").json == acked
    assert broker.call("GET", path).json == {"claims": []}
    counts = broker.counts(topic)
    assert (counts["acked"], counts["leased"], counts["ready"]) == (10, 0, 5)


def test_ranges(broker: Any, topic: str) -> None:
    """Any cut gives the same rows, also beyond the end; several record batches are one stream."""
    n = 9_000
    send(broker, topic, n, 8)
    assert make(broker, topic)["n"] == n
    whole = rows(broker, topic)
    assert whole["value"].to_pylist() == [b"%08d" % k for k in range(n)]
    for start, stop in ((0, 1), (4_095, 4_097), (8_999, 9_000), (100, 8_500)):
        part = rows(broker, topic, f"from={start}&to={stop}")
        assert part.equals(whole.slice(start, stop - start))
    assert rows(broker, topic, "from=8990&to=100000").num_rows == 10
    assert rows(broker, topic, "from=9000").num_rows == rows(broker, topic, "to=0").num_rows == 0
    assert len(set(whole["ref"].to_pylist())) == n


def test_columns(broker: Any, topic: str) -> None:
    """Each column in each form: with ids, keys and headers, without, and mixed."""
    due = int(time.time() * 1000) - 1
    given = [
        {"body": "a", "id": "é-1", "key": "k", "priority": 3, "headers": {"h": "v", "g": "é"}},
        {"body_base64": "/w=="},
        {"body": "", "id": "x", "tags": ["t"], "backoff": {"first_ms": 5}},
    ]
    sent = broker.post(f"/v1/topics/{topic}/messages", given)["messages"]
    assert make(broker, topic)["n"] == 3
    table = rows(broker, topic)
    assert {field.name: field.type for field in table.schema} == ROW
    by_id = {row["id"]: row for row in table.to_pylist()}
    assert set(by_id) == {each["id"] for each in sent}
    first, second, third = (by_id[each["id"]] for each in sent)
    assert (first["value"], second["value"], third["value"]) == (b"a", b"\xff", b"")
    assert (first["key"], second["key"]) == ("k", None)
    assert [row["priority"] for row in (first, second, third)] == [3, 0, 0]
    assert first["headers"] == [{"key": "h", "value": b"v"}, {"key": "g", "value": "é".encode()}]
    assert second["headers"] is third["headers"] is None
    for row, each in zip((first, second, third), sent, strict=True):
        assert (row["topic"], row["attempts"]) == (topic, 1)
        assert row["deliver_at"].timestamp() * 1000 == pytest.approx(each["deliver_at_ms"], abs=0.1)
        assert row["deliver_at"].timestamp() * 1000 >= due
    path = f"/v1/topics/{topic}/claims/c1/rows"
    answer = broker.call("GET", path).json
    assert {name: answer[name] for name in ("from", "to", "n")} == {"from": 0, "to": 3, "n": 3}
    assert [each["id"] for each in answer["messages"]] == table["id"].to_pylist()
    bulk = msgpack.unpackb(broker.call("GET", path, None, {"Accept": BULK}).body)
    assert (bulk["n"], bulk["lease"]) == (3, 0)
    assert np.frombuffer(bulk["refs"], "<i8").tolist() == table["ref"].to_pylist()
    packed = broker.call("GET", path, None, {"Accept": "application/msgpack"}).packed
    assert [each["receipt"] for each in packed["messages"]] == [
        each["receipt"] for each in answer["messages"]
    ]


@pytest.mark.parametrize("ids", [True, False])
def test_ids_of_all_or_none(broker: Any, topic: str, ids: bool) -> None:
    """The two plain cases."""
    given = [{"body": "x", **({"id": f"i{k}"} if ids else {})} for k in range(5)]
    sent = broker.post(f"/v1/topics/{topic}/messages", given)["messages"]
    make(broker, topic)
    assert sorted(rows(broker, topic)["id"].to_pylist()) == sorted(each["id"] for each in sent)


def test_one_message_by_its_receipt(broker: Any, topic: str) -> None:
    """Receipts of a claim's rows settle single ones."""
    send(broker, topic, 3)
    make(broker, topic)
    messages = broker.call("GET", f"/v1/topics/{topic}/claims/c1/rows?to=1").json["messages"]
    receipts = [each["receipt"] for each in messages]
    answer = broker.post(f"/v1/topics/{topic}/ack", {"receipts": receipts})
    assert answer == {"results": ["done"]}
    assert broker.post(f"/v1/topics/{topic}/claims/c1/release")["result"] == "done"
    counts = broker.counts(topic)
    assert (counts["acked"], counts["ready"], counts["leased"]) == (1, 2, 0)


def test_released(broker: Any, topic: str) -> None:
    """Ready again at once; whoever waits is woken."""
    send(broker, topic, 3)
    make(broker, topic)
    waiting = broker.later("POST", f"/v1/topics/{topic}/receive", {"wait_ms": 20_000, "max": 10})
    broker.await_waiting(1)
    path = f"/v1/topics/{topic}/claims/c1"
    assert broker.post(f"{path}/release")["state"] == "released"
    assert len(waiting.result().json["messages"]) == 3
    assert broker.post(f"{path}/release")["result"] == "already"


def test_gone(broker: Any, topic: str, assert_problem: Any) -> None:
    """Expired: 410 to every call, and its messages come back."""
    broker.call("PUT", f"/v1/topics/{topic}", {"backoff": {"first_ms": 0}})
    send(broker, topic, 3)
    path = f"/v1/topics/{topic}/claims/c1"
    make(broker, topic, lease_ms=50)
    got = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000, "max": 10})
    assert len(got["messages"]) == 3
    calls = [("POST", path), ("GET", f"{path}/rows")]
    calls += [("POST", f"{path}/{action}") for action in ("extend", "ack", "release")]
    for method, each in calls:
        assert assert_problem(broker.call(method, each), 410, "gone")["state"] == "expired"
    assert broker.call("GET", path).json["state"] == "expired"


def test_acked_is_over(broker: Any, topic: str, assert_problem: Any) -> None:
    """Nothing else is to be had of it."""
    send(broker, topic, 3)
    make(broker, topic)
    path = f"/v1/topics/{topic}/claims/c1"
    broker.post(f"{path}/ack")
    for method, each in (("POST", path), ("GET", f"{path}/rows"), ("POST", f"{path}/extend")):
        assert assert_problem(broker.call(method, each), 410, "gone")["state"] == "acked"
    assert_problem(broker.call("POST", f"{path}/release"), 409, "conflict")


def test_unknown(broker: Any, topic: str, assert_problem: Any) -> None:
    """404, of topic, group and claim."""
    path = f"/v1/topics/{topic}/claims/c1"
    calls = [("GET", path), ("GET", f"{path}/rows")]
    calls += [("POST", f"{path}/{action}") for action in ("extend", "ack", "release")]
    for known in (False, True):
        if known:
            send(broker, topic, 1)
        for method, each in calls:
            assert_problem(broker.call(method, each), 404, "unknown")
    assert_problem(broker.call("POST", path, {"group": "g"}), 404, "unknown", "group")
    assert_problem(broker.call("POST", f"{path}/more"), 404, "unknown")
    assert_problem(broker.call("POST", f"{path}/ack/more"), 404, "unknown")
    assert_problem(broker.call("DELETE", path), 405, "method")


BAD = {
    "max": {"max": 0},
    "max too large": {"max": 1_000_001},
    "max text": {"max": "1"},
    "lease_ms": {"lease_ms": 0},
    "group": {"group": 5},
    "tags": {"tags": "x"},
    "unknown": {"wait_ms": 5},
    "no object": [],
}


@pytest.mark.parametrize("case", BAD)
def test_bad_members(broker: Any, topic: str, assert_problem: Any, case: str) -> None:
    """Refused before anything is made."""
    answer = broker.call("POST", f"/v1/topics/{topic}/claims/c1", BAD[case])
    assert_problem(answer, 400, "bad_request")
    assert broker.counts(topic) is None


def test_bad_ranges(broker: Any, topic: str, assert_problem: Any) -> None:
    """Also what only Arrow can carry."""
    send(broker, topic, 10_001, 8)
    make(broker, topic)
    path = f"/v1/topics/{topic}/claims/c1/rows"
    for query in ("from=2&to=1", "from=-1", "from=x", "to=1.5", "colour=red"):
        assert_problem(broker.call("GET", f"{path}?{query}"), 400, "bad_request")
    assert_problem(broker.call("GET", path), 400, "bad_request", "to")
    assert len(broker.call("GET", f"{path}?from=1").json["messages"]) == 10_000
    assert_problem(broker.call("POST", f"/v1/topics/{topic}/claims/a%20b"), 400, "bad_request")


def test_an_empty_claim(broker: Any, topic: str) -> None:
    """Of a topic that is not there yet, too; every form of its rows is legal."""
    assert make(broker, topic)["n"] == 0
    assert rows(broker, topic).num_rows == 0
    path = f"/v1/topics/{topic}/claims/c1"
    assert broker.call("GET", f"{path}/rows").json["messages"] == []
    bulk = broker.call("GET", f"{path}/rows", None, {"Accept": BULK})
    assert msgpack.unpackb(bulk.body)["n"] == 0
    assert broker.post(f"{path}/ack")["result"] == "done"


def test_groups_and_tags(broker: Any, topic: str) -> None:
    """A claim is of one group; it takes what its tags ask for."""
    broker.call("PUT", f"/v1/topics/{topic}/groups/g", {})
    broker.post(
        f"/v1/topics/{topic}/messages", [{"body": "x", "tags": [tag]} for tag in ("a", "b", "a")]
    )
    assert make(broker, topic, tags=["a"])["n"] == 2
    assert make(broker, topic, group="g")["n"] == 3
    assert rows(broker, topic, "group=g").num_rows == 3
    path = f"/v1/topics/{topic}/claims/c1"
    assert broker.post(f"{path}/ack", {"group": "g"})["group"] == "g"
    assert broker.call("GET", path).json["state"] == "open"


def test_large_bodies(broker: Any, topic: str, assert_problem: Any) -> None:
    """As Arrow in batches of some size; as JSON they are too large."""
    body = "x" * (3 << 20)
    for _ in range(12):
        broker.post(f"/v1/topics/{topic}/messages", {"body": body})
    make(broker, topic)
    answer = broker.call("GET", f"/v1/topics/{topic}/claims/c1/rows")
    assert_problem(answer, 413, "too_large")
    table = rows(broker, topic)
    assert table.num_rows == 12
    assert max(len(chunk) for chunk in table["value"].chunks) <= 2


def test_many_at_the_same_time(broker: Any, topic: str) -> None:
    """Whoever makes the same claim gets the same messages."""
    send(broker, topic, 20_000, 8)
    path = f"/v1/topics/{topic}/claims/c1"
    answers = [broker.later("POST", path, {"max": 15_000}) for _ in range(8)]
    made = [answer.result().json for answer in answers]
    assert {each["n"] for each in made} == {15_000}
    assert broker.counts(topic)["leased"] == 15_000
    acks = [broker.later("POST", f"{path}/ack") for _ in range(4)]
    assert sorted(ack.result().json["result"] for ack in acks) == ["already"] * 3 + ["done"]
    assert broker.counts(topic)["acked"] == 15_000


def test_a_kill(start_broker: Callable[..., Any], topic: str) -> None:
    """What was answered holds after a kill: the same rows, then acked for good."""
    broker = start_broker()
    send(broker, topic, 10_000, 8)
    made = make(broker, topic, max=9_000, lease_ms=600_000)
    before = rows(broker, topic)
    broker.kill()
    broker.start()
    assert make(broker, topic) == made
    assert rows(broker, topic).equals(before)
    assert broker.post(f"/v1/topics/{topic}/claims/c1/ack")["result"] == "done"
    broker.kill()
    broker.start()
    assert broker.post(f"/v1/topics/{topic}/claims/c1/ack")["result"] == "already"
    assert broker.counts(topic)["acked"] == 9_000


def test_a_caller_that_goes_away(broker: Any, topic: str) -> None:
    """What it asked for is carried out all the same, or by who asks again."""
    for _ in range(5):
        send(broker, topic, 40_000, 8)
    path = f"/v1/topics/{topic}/claims/c1"
    for call, state in ((path, "leased"), (f"{path}/ack", "acked")):
        with broker.connect() as sock:
            sock.sendall(request(call, b"{}"))
            # A request need not be carried out if its caller leaves before it has begun.
            await_that(lambda state=state: broker.counts(topic)[state], pause_s=0.0)
        if call == path:
            assert make(broker, topic)["n"] == 200_000
    await_that(lambda: broker.counts(topic)["acked"] >= 200_000, seconds=30, pause_s=0.1)
    assert broker.call("GET", path).json["state"] == "acked"


def test_metrics(broker: Any, topic: str) -> None:
    """How many there are, and how they ended."""
    send(broker, topic, 3)
    make(broker, topic)
    text = broker.call("GET", "/metrics").body.decode()
    assert float(text.split("\ndelaylog_claims ")[1].split("\n")[0]) >= 1
    assert float(text.split("\ndelaylog_claim_rows ")[1].split("\n")[0]) >= 3
    broker.post(f"/v1/topics/{topic}/claims/c1/ack")
    text = broker.call("GET", "/metrics").body.decode()
    assert 'delaylog_claims_ended_total{state="acked"}' in text


def test_a_refused_claim_makes_no_topic(broker: Any, topic: str, assert_problem: Any) -> None:
    assert broker.call("PUT", "/v1/hold", {"note": "drill"}).status == 200
    try:
        asked = broker.call("POST", f"/v1/topics/{topic}/claims/c", {})
        assert_problem(asked, 503, "held")
        assert broker.call("GET", f"/v1/topics/{topic}").status == 404
    finally:
        assert broker.call("DELETE", "/v1/hold").status == 200
