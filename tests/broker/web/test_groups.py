"""Groups, purge, pause and forced delete, as a client meets them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.broker.camellia.conftest import Camellia


def receive(broker: Any, topic: str, **members: Any) -> list[dict[str, Any]]:
    return broker.post(f"/v1/topics/{topic}/receive", {"max": 100, **members})["messages"]


def send(broker: Any, topic: str, *bodies: str, delay_ms: int = 0) -> None:
    messages = [{"body": body, "delay_ms": delay_ms} for body in bodies]
    broker.post(f"/v1/topics/{topic}/messages", messages)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_statuses_and_lists_of_groups(broker: Any, topic: str) -> None:
    url = f"/v1/topics/{topic}/groups"
    assert broker.call("PUT", f"{url}/mail", {}).status == 201
    assert broker.call("PUT", f"{url}/mail", {"ephemeral": True}).status == 200
    listed = broker.call("GET", url).json["groups"]
    assert [(each["group"], each["ephemeral"]) for each in listed] == [
        ("default", False),
        ("mail", True),
    ]
    assert broker.call("GET", f"{url}/mail").json["counts"]["leased"] == 0
    assert broker.call("DELETE", f"{url}/mail").status == 200
    assert broker.call("GET", f"{url}/mail").status == 404


@pytest.mark.parametrize("name", ["a%20b", "%2F", "x" * 201, "%C3%A4"])
def test_a_bad_group_name(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    answer = broker.call("PUT", f"/v1/topics/{topic}/groups/{name}", {})
    assert_problem(answer, 400, "bad_request", "group")


def test_refusals_of_default_and_unknown_groups(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    url = f"/v1/topics/{topic}"
    send(broker, topic, "x")
    for method in ("DELETE", "PUT"):
        assert_problem(broker.call(method, f"{url}/groups/default", {}), 409, "conflict")
    assert_problem(broker.call("POST", f"{url}/purge", {"group": "no"}), 404, "unknown", "group")
    assert broker.post(f"{url}/purge", {}) == {"result": "done", "purged": 1}
    broker.call("PUT", url, {"default_group": False})
    assert_problem(broker.call("POST", f"{url}/receive", {}), 404, "unknown", "group")
    broker.call("PUT", f"{url}/groups/a", {})
    broker.post(f"{url}/messages", {"body": "x", "id": "before b"})
    broker.call("PUT", f"{url}/groups/b", {})
    answer = broker.call("GET", f"{url}/messages/before%20b?group=b")
    assert "for group 'b'" in assert_problem(answer, 404, "unknown")["detail"]


def test_a_purge_that_erases(broker: Any, topic: str, assert_problem: Any) -> None:
    """It is about all of a topic, and by force; the topic says that it goes on."""
    url = f"/v1/topics/{topic}"
    send(broker, topic, "a", "b", delay_ms=60_000)
    assert broker.call("GET", url).json["erasing"] is False
    answer = broker.call("POST", f"{url}/purge", {"erase": True})
    assert_problem(answer, 400, "bad_request", "erase")
    broker.call("PUT", f"{url}/groups/mail", {})
    both = {"erase": True, "force": True, "group": "mail"}
    assert_problem(broker.call("POST", f"{url}/purge", both), 400, "bad_request", "erase")
    assert broker.call("GET", url).json["counts"]["waiting"] == 2
    answer = broker.post(f"{url}/purge", {"erase": True, "force": True})
    assert answer == {"result": "done", "purged": 2}
    assert broker.call("GET", url).json["erasing"] is True


def test_pause_and_resume(broker: Any, topic: str) -> None:
    url = f"/v1/topics/{topic}"
    send(broker, topic, "x")
    assert broker.call("POST", f"{url}/pause").json["paused"] is True
    assert receive(broker, topic, wait_ms=200) == []
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.extend(receive(broker, topic, wait_ms=60_000)))
    waiter.start()
    assert broker.call("GET", url).json["paused"] is True
    assert broker.call("POST", f"{url}/resume").json["paused"] is False
    waiter.join(25)
    assert bodies(got) == ["x"]


@pytest.mark.parametrize("call", ["pause", "resume"])
def test_pause_and_resume_take_no_members(
    broker: Any, topic: str, assert_problem: Any, call: str
) -> None:
    url = f"/v1/topics/{topic}/{call}"
    send(broker, topic, "x")
    for body, field in (({"group": "a"}, "group"), ([1], None), (b"{", None)):
        assert_problem(broker.call("POST", url, body), 400, "bad_request", field)
    assert broker.call("GET", f"/v1/topics/{topic}").json["paused"] is False
    assert broker.call("POST", url, {}).status == 200


def test_without_any_group_there_is_nothing_to_change(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    """A message without a group does not live, so no call changes it."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", url, {"default_group": False})
    id_ = broker.post(f"{url}/messages", {"body": "x", "delay_ms": 60_000})["id"]
    change = broker.call("PATCH", f"{url}/messages/{id_}", {"delay_ms": 90_000_000})
    assert_problem(change, 404, "unknown")
    assert_problem(broker.call("DELETE", f"{url}/messages/{id_}"), 404, "unknown")
    answer = broker.post(f"{url}/messages:cancel", {"ids": [id_]})
    assert answer["results"] == [{"result": "unknown"}]
    assert broker.call("DELETE", url).status == 200


@pytest.mark.parametrize("end", ["group", "topic", "setting"])
def test_a_poll_ends_with_its_group(broker: Any, topic: str, assert_problem: Any, end: str) -> None:
    """A receive that waits is refused as soon as its group is gone, whatever it filters."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", f"{url}/groups/a", {})
    group = {} if end == "setting" else {"group": "a"}
    filters = ({}, {}, {"tags": ["x"]}, {"ids": ["x"]})
    calls = [
        broker.later("POST", f"{url}/receive", {"wait_ms": 60_000, **group, **each})
        for each in filters
    ]
    broker.await_waiting(len(calls))
    if end == "group":
        broker.call("DELETE", f"{url}/groups/a")
    elif end == "topic":
        broker.call("DELETE", url)
    else:
        broker.call("PUT", url, {"default_group": False})
    for call in calls:
        assert_problem(call.result(30), 404, "unknown", "group")


def test_a_poll_keeps_an_ephemeral_group(start_broker: Any, topic: str) -> None:
    """A receive that waits uses the group, however long ago it began: the group stays."""
    broker = start_broker(constants={"delaylog.broker.engine.topics.idle.EPHEMERAL_IDLE_MS": 4_000})
    broker.call("PUT", f"/v1/topics/{topic}/groups/a", {"ephemeral": True})
    ask = {"group": "a", "wait_ms": 25_000}
    call = broker.later("POST", f"/v1/topics/{topic}/receive", ask)
    broker.await_waiting(1)
    send(broker, topic, "x", delay_ms=7_000)
    assert bodies(call.result(30).json["messages"]) == ["x"]
    assert broker.stop() == 0


def test_a_message_as_each_group_sees_it(broker: Any, topic: str, assert_problem: Any) -> None:
    """State, attempts and the next time are a group's own; so are a topic's counts."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", f"{url}/groups/a", {})
    broker.post(f"{url}/messages", {"body": "x", "id": "m"})
    (mine,) = receive(broker, topic, group="a", wait_ms=5_000)
    broker.post(f"{url}/nack", {"receipts": [mine["receipt"]], "delay_ms": 3_600_000})
    seen = broker.call("GET", f"{url}/messages/m?group=a").json
    assert (seen["state"], seen["attempts"]) == ("waiting", 1)
    assert seen["deliver_at_ms"] >= mine["deliver_at_ms"] + 3_600_000
    seen = broker.call("GET", f"{url}/messages/m").json
    assert (seen["state"], seen["attempts"]) == ("ready", 0)
    assert seen["deliver_at_ms"] == mine["deliver_at_ms"]
    lines = {
        group: [
            step["event"]
            for step in broker.call("GET", f"{url}/messages/m?life=1&group={group}").json["life"]
        ]
        for group in ("a", "default")
    }
    assert lines["a"] == ["sent", "ready", "leased", "nacked", "due"]
    assert lines["default"] == ["sent", "ready"]
    stats = {
        group: broker.call("GET", f"{url}/stats?group={group}").json for group in ("a", "default")
    }
    assert (stats["a"]["counts"]["waiting"], stats["a"]["counts"]["ready"]) == (1, 0)
    assert (stats["a"]["group"], stats["a"]["delivered"]) == ("a", 1)
    assert sum(each["count"] for each in stats["a"]["delay_buckets"]) == 1
    assert (stats["default"]["counts"]["waiting"], stats["default"]["counts"]["ready"]) == (0, 1)
    assert sum(each["count"] for each in stats["default"]["delay_buckets"]) == 0
    assert broker.call("GET", f"{url}/stats").json["group"] == "default"
    for path in ("messages/m", "stats"):
        answer = broker.call("GET", f"{url}/{path}?group=no")
        problem = assert_problem(answer, 404, "unknown", "group")
        assert "default, a" in problem["detail"]
        assert "PUT …/groups/no" in problem["detail"]


def test_no_interface_acts_for_an_absent_default_group(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    """A message that no default group has shows no state of one, on any interface."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", url, {"default_group": False})
    problem = assert_problem(broker.call("GET", f"{url}/stats"), 404, "unknown", "group")
    assert "none yet" in problem["detail"]
    broker.call("PUT", f"{url}/groups/a", {})
    broker.post(f"{url}/messages", {"body": "x", "id": "m"})
    for path in ("messages/m", "stats", "messages/m?life=true"):
        problem = assert_problem(broker.call("GET", f"{url}/{path}"), 404, "unknown", "group")
        assert "its groups are a" in problem["detail"]
    camellia = Camellia(broker)
    assert camellia.get(topic, "m") is None
    assert camellia.delete(topic, "m") == 404
    camellia.ack(topic, "m")
    assert camellia.send(topic, "y", msgId="m")["msg"] == "x", "the living one is kept"
    assert broker.call("GET", f"{url}/messages/m?group=a").json["state"] == "ready"
    assert bodies(receive(broker, topic, group="a")) == ["x"]


def test_a_change_is_reported_by_a_group_that_made_it(broker: Any, topic: str) -> None:
    """Not by one that was too late, though that one is asked first."""
    url = f"/v1/topics/{topic}"
    broker.call("PUT", f"{url}/groups/a", {})
    broker.post(f"{url}/messages", {"body": "x", "id": "m"})
    (mine,) = receive(broker, topic, wait_ms=5_000)
    broker.post(f"{url}/ack", {"receipts": [mine["receipt"]]})
    moved = broker.call("PATCH", f"{url}/messages/m", {"delay_ms": 60_000}).json
    assert (moved["result"], moved["state"], moved["groups"]) == ("done", "waiting", ["default"])
    assert moved["deliver_at_ms"] > mine["deliver_at_ms"] + 50_000
    ended = broker.call("DELETE", f"{url}/messages/m").json
    assert (ended["result"], ended["state"], ended["groups"]) == ("done", "cancelled", ["default"])
