"""Receive, peek, ack, nack, extend, and long polls: what wakes them and what they never lose."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import pytest

from delaylog.contract.calls.shapes import STATE
from tests.broker.web.test_fast_lane import request
from tests.waiting import await_that

BULK = "application/vnd.delaylog.batch"
WAIT = {"wait_ms": 20_000}
EMPTY = dict.fromkeys(STATE.words, 0)


@pytest.fixture
def path(broker: Any, topic: str) -> str:
    """A topic without backoff, so that retries are ready at once."""
    path = f"/v1/topics/{topic}"
    assert broker.call("PUT", path, {"backoff": {"first_ms": 0}}).status == 201
    return path


def test_empty(broker: Any, topic: str) -> None:
    """Nothing there: an empty list and the broker's clock, in every form."""
    path = f"/v1/topics/{topic}"
    for call in ("receive", "peek"):
        got = broker.post(f"{path}/{call}", {})
        assert got["messages"] == []
        assert abs(got["now_ms"] - time.time() * 1000) < 10_000
    got = broker.call("POST", f"{path}/receive", {"max": 5}, {"Accept": BULK})
    assert got.headers["Content-Type"] == BULK
    assert got.packed["n"] == 0
    names = ["headers", "key", "priority", "tags"]
    got = broker.call("POST", f"{path}/receive", {"columns": names}, {"Accept": BULK})
    wanted = {*names, "headers_size", "key_size", "tags_size"}
    assert {got.packed.get(name) for name in wanted} == {b""}


def test_a_bulk_body_asks(broker: Any, topic: str, path: str, assert_problem: Any) -> None:
    """The members of a receive in a bulk body, which has a version and no rows."""
    broker.post(f"{path}/messages", {"body": "x", "tags": ["a"], "priority": 3})
    url = f"{path}/receive"
    for fields, field in (
        ({"v": 2}, "v"),
        ({"v": 1, "n": 1}, "n"),
        ({"v": 1, "refs": b""}, "refs"),
        ({"v": 1, "max": 0}, "max"),
    ):
        assert_problem(broker.bulk(url, fields), 400, "bad_request", field)
    wanted = {"v": 1, "n": 0, **WAIT, "columns": ["tags", "priority"], "tags": ["a"]}
    got = broker.bulk(url, wanted).packed
    assert (got["v"], got["n"], got["bodies"], got["tags"]) == (1, 1, b"x", b"a")
    assert got["priority"] == 3
    assert "key" not in got


def test_ack_and_receive(broker: Any, topic: str, path: str, assert_problem: Any) -> None:
    """Each receipt has its result, and one that is not good does not stop the receive."""
    url = f"{path}/ack_and_receive"
    broker.post(f"{path}/messages", [{"body": str(n), "key": "k"} for n in range(3)])
    (first,) = broker.post(f"{path}/receive", WAIT)["messages"]
    alien = "0" * 31 + "7"
    got = broker.post(url, WAIT | {"receipts": [first["receipt"], alien], "max": 5})
    assert got["results"] == ["done", "gone"]
    assert abs(got["now_ms"] - time.time() * 1000) < 10_000
    (second,) = got["messages"]
    assert (first["body"], second["body"]) == ("0", "1"), "the key is free for the next one"
    again = [first["receipt"], second["receipt"]]
    got = broker.call("POST", url, WAIT | {"receipts": again}, {"Accept": BULK}).packed
    assert (got["results"], got["n"], got["bodies"]) == (["gone", "done"], 1, b"2")
    broker.post(f"{path}/messages", [{"body": "p"}, {"body": "q"}])
    (plain,) = broker.post(f"{path}/receive", WAIT)["messages"]
    one = WAIT | {"receipts": [plain["receipt"]]}
    got = broker.call("POST", url, one, {"Accept": BULK}).packed
    assert (got["results"], got["n"], got["bodies"]) == (["done"], 1, b"q")
    assert_problem(broker.call("POST", url, {"max": 1}), 400, "bad_request", "receipts")
    assert_problem(broker.call("POST", url, {"receipts": ["x"]}), 400, "bad_request", "receipts")
    lease = {"receipts": [], "lease_ms": 0}
    assert_problem(broker.call("POST", url, lease), 400, "bad_request", "lease_ms")
    assert broker.post(url, {"receipts": []})["messages"] == []
    assert broker.counts(topic) == EMPTY | {"leased": 2, "acked": 3}


def test_an_ack_does_not_wait_for_the_receive(broker: Any, topic: str, path: str) -> None:
    """Nor does it fail with a client that goes away while it waits."""
    broker.post(f"{path}/messages", {"body": "x"})
    (message,) = broker.post(f"{path}/receive", WAIT)["messages"]
    asked = WAIT | {"receipts": [message["receipt"]]}
    call = broker.later("POST", f"{path}/ack_and_receive", asked)
    broker.await_waiting(1)
    assert broker.counts(topic) == EMPTY | {"acked": 1}
    broker.post(f"{path}/messages", {"body": "y"})
    (message,) = call.result(30).json["messages"]
    asked = {"wait_ms": 60_000, "receipts": [message["receipt"]]}
    gone = vanishing(broker, topic, json.dumps(asked).encode(), "ack_and_receive")
    broker.await_waiting(1)
    gone.close()
    broker.await_waiting(0)
    assert broker.counts(topic) == EMPTY | {"acked": 2}


def test_settling_in_bulk(broker: Any, topic: str, path: str) -> None:
    """A lease settles by refs, or whole but for some; what it does not hold is `gone`."""
    fields = {"v": 1, "n": 5, "delay_ms": 0, "body_size": 1, "bodies": b"abcde"}
    broker.bulk(f"{path}/messages", fields)
    broker.await_metric("delaylog_living_messages" + labels(topic), 5)
    got: dict[str, Any] = {"n": 0}
    while got["n"] < 5:
        got = broker.call("POST", f"{path}/receive", WAIT | {"max": 10}, {"Accept": BULK}).packed
        if got["n"] < 5:
            all_back = {"v": 1, "n": 0, "lease": got["lease"], "all": True, "delay_ms": 0}
            broker.bulk(f"{path}/nack", all_back)
    refs = [got["refs"][at : at + 8] for at in range(0, 40, 8)]
    head = {"v": 1, "lease": got["lease"]}
    alien = struct.pack("<q", 12345)
    answer = broker.bulk(f"{path}/ack", head | {"n": 3, "refs": refs[0] + alien + refs[1]})
    assert answer.packed == {"v": 1, "n": 3, "done": 2, "gone": alien, "unknown": b""}
    answer = broker.bulk(f"{path}/extend", head | {"n": 1, "refs": refs[2], "lease_ms": 60_000})
    assert answer.packed["done"] == 1
    nack = head | {"n": 1, "all": True, "except": refs[2], "delay_ms": 3_600_000}
    assert broker.bulk(f"{path}/nack", nack).packed["done"] == 2
    assert broker.counts(topic) == EMPTY | {"waiting": 2, "leased": 1, "acked": 2}
    assert broker.bulk(f"{path}/ack", head | {"n": 0, "all": True}).packed["done"] == 1
    again = broker.bulk(f"{path}/ack", head | {"n": 1, "refs": refs[0]}).packed
    assert again["done"] == 0
    assert again["gone"] == refs[0]


def labels(topic: str) -> str:
    """How a metric of a topic is labelled."""
    return f'{{group="default",namespace="default",topic="{topic}"}}'


def test_forced_by_id(broker: Any, topic: str, path: str) -> None:
    """With force, ids stand for whatever lease holds them now."""
    broker.post(f"{path}/messages", {"id": "a", "body": "x"})
    broker.post(f"{path}/messages", {"id": "b", "body": "x", "delay_ms": 3_600_000})
    broker.post(f"{path}/receive", WAIT)
    ask = {"ids": ["a", "b", "c"], "force": True}
    assert broker.post(f"{path}/extend", ask | {"lease_ms": 60_000})["results"] == [
        "done",
        "gone",
        "unknown",
    ]
    assert broker.post(f"{path}/ack", ask)["results"] == ["done", "gone", "unknown"]
    assert broker.counts(topic) == EMPTY | {"waiting": 1, "acked": 1}
    assert broker.post("/v1/topics/not-there/ack", ask)["results"] == ["unknown"] * 3


def vanishing(broker: Any, topic: str, members: bytes, call: str = "receive") -> Any:
    """A raw long poll."""
    sock = broker.connect()
    sock.sendall(request(f"/v1/topics/{topic}/{call}", members))
    return sock


def test_vanished_before_the_send(broker: Any, topic: str) -> None:
    """A poll whose client has gone takes nothing: the message goes to the next consumer."""
    gone = vanishing(broker, topic, b'{"wait_ms":60000,"lease_ms":43200000}')
    broker.await_waiting(1)
    gone.close()
    broker.await_waiting(0)
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    assert broker.post(f"/v1/topics/{topic}/receive", WAIT)["messages"][0]["body"] == "x"


def test_vanished_among_others(broker: Any, topic: str) -> None:
    """Half of many polls vanish while messages come in: every message reaches a living one."""
    path = f"/v1/topics/{topic}"
    ask = b'{"wait_ms":60000,"lease_ms":500}'
    gone = [vanishing(broker, topic, ask) for _ in range(10)]
    broker.await_waiting(10)
    calls = [broker.later("POST", f"{path}/receive", WAIT) for _ in range(10)]
    broker.await_waiting(20)
    broker.call("PUT", path, {"backoff": {"first_ms": 0}})
    for n, sock in enumerate(gone):
        broker.post(f"{path}/messages", {"body": str(n)})
        sock.close()
    bodies = [call.result(30).json["messages"][0]["body"] for call in calls]
    assert sorted(bodies) == [str(n) for n in range(10)]


def test_vanished_with_the_message(broker: Any, topic: str) -> None:
    """A client that dies after the answer was sent: the message comes back after its lease."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"backoff": {"first_ms": 0}})
    gone = vanishing(broker, topic, b'{"wait_ms":60000,"lease_ms":300}')
    broker.await_waiting(1)
    broker.post(f"{path}/messages", {"body": "x"})
    assert b'"body":"x"' in gone.recv(65_536)
    gone.close()
    (again,) = broker.post(f"{path}/receive", WAIT)["messages"]
    assert again["attempts"] == 2


def await_ready(broker: Any, topic: str, count: int) -> None:
    """Return once so many messages may be handed out."""
    await_that(lambda: broker.counts(topic)["ready"] >= count)


def test_a_key_that_is_freed_wakes_who_chose_its_next_message(broker: Any, topic: str) -> None:
    """Also when somebody else was refused that message before."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", [{"body": x, "id": x, "key": "k"} for x in "ab"])
    await_ready(broker, topic, 2)
    (first,) = broker.post(f"{path}/receive", {"max": 10})["messages"]
    call = broker.later("POST", f"{path}/receive", WAIT | {"ids": ["b"]})
    broker.await_waiting(1)
    broker.post(f"{path}/ack", {"receipts": [first["receipt"]]})
    assert [each["id"] for each in call.result(30).json["messages"]] == ["b"]


def test_who_waits_for_the_same_ids_shares_them(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    ask = WAIT | {"ids": ["a", "b"], "max": 1}
    calls = [broker.later("POST", f"{path}/receive", ask) for _ in range(2)]
    broker.await_waiting(2)
    broker.post(f"{path}/messages", [{"body": x, "id": x} for x in "ab"])
    got = [call.result(30).json["messages"][0]["id"] for call in calls]
    assert sorted(got) == ["a", "b"]


def test_settings_that_let_more_through_wake(broker: Any, topic: str) -> None:
    """Who waits for a slow rate is served at once when the rate is lifted."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"rate_limit": {"per_second": 0.001, "burst": 1}})
    broker.post(f"{path}/messages", [{"body": "1"}, {"body": "2"}])
    assert len(broker.post(f"{path}/receive", WAIT | {"max": 10})["messages"]) == 1
    call = broker.later("POST", f"{path}/receive", WAIT)
    broker.await_waiting(1)
    broker.call("PUT", path, {})
    assert len(call.result(30).json["messages"]) == 1


@pytest.mark.parametrize("how", ["ack", "nack", "purge"])
def test_room_for_more_leases_wakes(crowded: Any, topic: str, how: str) -> None:
    """With as many under lease as may be, a receive waits until one is settled."""
    path = f"/v1/topics/{topic}"
    crowded.call("PUT", path, {"backoff": {"first_ms": 3_600_000}})
    crowded.post(f"{path}/messages", [{"body": str(n)} for n in range(3)])
    (first,) = crowded.post(f"{path}/receive", WAIT | {"max": 10})["messages"]
    call = crowded.later("POST", f"{path}/receive", WAIT)
    crowded.await_waiting(1)
    if how == "purge":
        crowded.post(f"{path}/purge", {"force": True})
        crowded.post(f"{path}/messages", {"body": "new"})
    else:
        crowded.post(f"{path}/{how}", {"receipts": [first["receipt"]]})
    (second,) = call.result(30).json["messages"]
    assert second["body"] == ("new" if how == "purge" else "1")


@pytest.fixture(scope="module")
def crowded(sound_broker: Any) -> Any:
    """A broker that lets one message of a group be under lease."""
    return sound_broker(limits="leased_max = 1")


def test_peek_gives_no_receipts(broker: Any, topic: str, path: str) -> None:
    broker.post(f"{path}/messages", {"body": "x"})
    (seen,) = broker.post(f"{path}/peek", {})["messages"]
    assert "receipt" not in seen
    assert seen["attempts"] == 0


WAKES = ("send", "due", "nack", "extend", "expiry", "reschedule", "backoff", "group")


@pytest.mark.parametrize("how", WAKES)
def test_what_wakes_a_long_poll(broker: Any, topic: str, path: str, how: str) -> None:
    """A message that is sent, comes due, is given back, expires, or is brought forward."""
    group = {"group": "a"} if how == "group" else {}
    later = 3_600_000 if how == "reschedule" else 0
    if how == "backoff":
        broker.call("PUT", path, {"backoff": {"first_ms": 50}})
    elif how == "group":
        broker.call("PUT", f"{path}/groups/a", {})
    early = how not in ("send", "due", "group")
    receipts = []
    if early:
        broker.post(f"{path}/messages", {"id": "a", "body": "x", "delay_ms": later})
    if early and not later:
        lease = {"lease_ms": 500} if how == "expiry" else {}
        (got,) = broker.post(f"{path}/receive", WAIT | lease)["messages"]
        receipts = [got["receipt"]]
    call = broker.later("POST", f"{path}/receive", WAIT | group)
    if how != "expiry":
        broker.await_waiting(1)
    if how in ("nack", "backoff"):
        broker.post(f"{path}/nack", {"receipts": receipts})
    elif how == "extend":
        broker.post(f"{path}/extend", {"receipts": receipts, "lease_ms": 0})
    elif how == "reschedule":
        assert broker.call("PATCH", f"{path}/messages/a", {"delay_ms": 0}).status == 200
    elif not early:
        wait = 0 if how == "send" else 300
        broker.post(f"{path}/messages", {"id": "a", "body": "x", "delay_ms": wait})
    answer = call.result(30).json
    (again,) = answer["messages"]
    assert again["id"] == "a"
    assert again["attempts"] == (2 if how in ("nack", "expiry", "backoff") else 1)
    assert again["deliver_at_ms"] <= answer["now_ms"]


def test_a_long_poll_on_a_topic_that_is_not_there(broker: Any, topic: str) -> None:
    """It ends empty when its time is up and is forgotten, or gets what is sent meanwhile."""
    path = f"/v1/topics/{topic}"
    assert broker.post(f"{path}/receive", {"wait_ms": 50})["messages"] == []
    broker.await_waiting(0)
    call = broker.later("POST", f"{path}/receive", WAIT)
    broker.await_waiting(1)
    broker.post(f"{path}/messages", {"body": "x"})
    assert call.result(30).json["messages"][0]["body"] == "x"


@pytest.mark.parametrize("at_once", [False, True])
def test_each_message_wakes_one(broker: Any, topic: str, at_once: bool) -> None:
    """Ten polls for one message each, ten messages: nobody gets the same."""
    path = f"/v1/topics/{topic}"
    calls = [broker.later("POST", f"{path}/receive", WAIT) for _ in range(10)]
    broker.await_waiting(10)
    if at_once:
        fields = {"v": 1, "n": 10, "delay_ms": 0, "body_size": 1, "bodies": b"0123456789"}
        broker.bulk(f"{path}/messages", fields)
    else:
        for n in range(10):
            broker.post(f"{path}/messages", {"body": str(n)})
    bodies = [call.result(30).json["messages"][0]["body"] for call in calls]
    assert sorted(bodies) == list("0123456789")
