"""Row by row through what camellia-delay-queue's page of behaviour says, on a live server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.waiting import await_that

HOUR = 3_600_000
MESSAGE = {
    "topic",
    "msgId",
    "msg",
    "produceTime",
    "triggerTime",
    "expireTime",
    "maxRetry",
    "retry",
    "status",
}


# --------------------------------------------------------------------------- transport


@pytest.mark.parametrize(
    ("name", "params", "field"),
    [
        ("sendMsg", {"topic": "t", "msg": "m"}, "delayMillis"),
        ("sendMsg", {"topic": "t", "delayMillis": 1}, "msg"),
        ("sendMsg", {"msg": "m", "delayMillis": 1}, "topic"),
        ("sendMsg", {"topic": "t", "msg": "m", "delayMillis": "soon"}, "delayMillis"),
        ("sendMsg", {"topic": "t", "msg": "m", "delayMillis": 2**63}, "delayMillis"),
        ("sendMsg", {"topic": "t", "msg": "m", "delayMillis": ""}, "delayMillis"),
        ("sendMsg", {"topic": "t", "msg": "m", "delayMillis": 1, "maxRetry": 2**31}, "maxRetry"),
        ("sendMsg", {"topic": "t", "msg": "m", "delayMillis": 1, "ttlMillis": "1.5"}, "ttlMillis"),
        ("pullMsg", {}, "topic"),
        ("pullMsg", {"topic": "t", "batch": "many"}, "batch"),
        ("longPollingMsg", {"topic": "t", "ackTimeoutMillis": "x"}, "ackTimeoutMillis"),
        ("ackMsg", {"topic": "t", "msgId": "m"}, "ack"),
        ("ackMsg", {"topic": "t", "msgId": "m", "ack": "perhaps"}, "ack"),
        ("ackMsg", {"topic": "t", "ack": "true"}, "msgId"),
        ("getMsg", {"topic": "t"}, "msgId"),
        ("deleteMsg", {"topic": "t"}, "msgId"),
        ("deleteMsg", {"topic": "t", "msgId": "m", "release": "2"}, "release"),
        ("getTopicInfo", {}, "topic"),
    ],
)
def test_a_malformed_call_is_http_400(
    camellia: Any, name: str, params: dict[str, Any], field: str
) -> None:
    method = "GET" if name == "getTopicInfo" else "POST"
    answer = camellia.raw(name, method, **params)
    assert answer.status == 400
    assert json.loads(answer.body)["field"] == field


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/camellia/delayQueue/sendMsg", 405),
        ("POST", "/camellia/delayQueue/getMonitorData", 405),
        ("POST", "/camellia/delayQueue/nothing", 404),
        ("GET", "/camellia", 404),
        ("GET", "/camellia/delayQueue", 404),
    ],
)
def test_wrong_methods_and_paths(broker: Any, method: str, path: str, status: int) -> None:
    assert broker.call(method, path).status == status


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("sendMsg", {"topic": "", "msg": "m", "delayMillis": 0}),
        ("sendMsg", {"topic": "t", "msg": "", "delayMillis": 0}),
        ("pullMsg", {"topic": ""}),
        ("longPollingMsg", {"topic": ""}),
        ("ackMsg", {"topic": "", "msgId": "a", "ack": "true"}),
        ("ackMsg", {"topic": "t", "msgId": "", "ack": "true"}),
        ("getMsg", {"topic": "", "msgId": "a"}),
        ("getMsg", {"topic": "t", "msgId": ""}),
        ("deleteMsg", {"topic": "", "msgId": "a"}),
        ("deleteMsg", {"topic": "t", "msgId": ""}),
    ],
)
def test_empty_topic_id_or_message_is_code_400(
    camellia: Any, name: str, params: dict[str, Any]
) -> None:
    answer = camellia.call(name, **params)
    assert answer["code"] == 400
    assert answer.get("msg") is None


def test_parameters_in_the_query_work_too_and_the_first_value_counts(
    camellia: Any, broker: Any, topic: str
) -> None:
    path = f"/camellia/delayQueue/sendMsg?topic={topic}&msg=in+the+query&delayMillis=0"
    assert broker.call("POST", path).json["delayMsg"]["msg"] == "in the query"
    assert broker.call("POST", f"{path}&msg=second", b"msg=third").json["code"] == 200
    assert {m["msg"] for m in camellia.pull(topic, batch=9)} == {"in the query"}


def test_null_members_are_there_but_for_long_polls(camellia: Any, topic: str) -> None:
    assert camellia.call("pullMsg", topic=topic) == {"code": 200, "msg": None, "delayMsgList": []}
    polled = camellia.call("longPollingMsg", topic=topic, longPollingTimeoutMillis=1)
    assert polled == {"code": 200, "delayMsgList": []}
    assert camellia.call("getMsg", topic=topic, msgId="x") == {
        "code": 404,
        "msg": None,
        "delayMsg": None,
    }


@pytest.mark.parametrize("text", ["order:timeout", "a b", "订单", "a/b?c=d&e"])
def test_topics_and_texts_that_only_camellia_allows(camellia: Any, topic: str, text: str) -> None:
    name = f"{topic} {text}"
    camellia.send(name, msg=f"{text}\n\t😀", msgId=text)
    found = camellia.pull_one(name)
    assert (found["topic"], found["msgId"], found["msg"]) == (name, text, f"{text}\n\t😀")
    camellia.ack(name, text)


@pytest.mark.parametrize(
    "params",
    [
        {"msgId": "~0123456789abcdef"},
        {"msgId": "x" * 256},
        {"msgId": "a\nb"},
        {"delayMillis": 2**62},
        {"topic": "t" * 201},
        {"topic": "a\nb"},
    ],
)
def test_a_message_beyond_a_limit_is_code_400_with_the_reason(
    camellia: Any, topic: str, params: dict[str, Any]
) -> None:
    answer = camellia.call(
        "sendMsg", **{"topic": topic, "msg": "m", "delayMillis": 0, "msgId": "a", **params}
    )
    assert answer["code"] == 400
    assert len(answer["msg"]) > 10


# --------------------------------------------------------------------------- sendMsg


def test_a_message_has_nine_members_and_camellias_defaults(camellia: Any, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    found = camellia.send(topic, "hello", 60_000)
    after = time.time_ns() // 1_000_000
    assert found.keys() == MESSAGE
    assert before <= found["produceTime"] <= after
    assert found["triggerTime"] == found["produceTime"] + 60_000
    assert found["expireTime"] == found["triggerTime"] + HOUR
    assert (found["topic"], found["msg"]) == (topic, "hello")
    assert (found["maxRetry"], found["retry"], found["status"]) == (10, 0, 1)
    assert len(found["msgId"]) == 32
    assert set(found["msgId"]) <= set("0123456789abcdef")
    assert camellia.get(topic, found["msgId"]) == found


@pytest.mark.parametrize(("delay", "status"), [(-5, 2), (0, 2), (1, 1), (100, 1), (101, 1)])
def test_the_state_after_a_send(camellia: Any, topic: str, delay: int, status: int) -> None:
    found = camellia.send(topic, delay=delay)
    assert found["status"] == status
    assert found["triggerTime"] == found["produceTime"] + max(delay, 0)


@pytest.mark.parametrize(
    ("params", "ttl", "retry"),
    [
        ({}, HOUR, 10),
        ({"ttlMillis": 0, "maxRetry": -1}, HOUR, 10),
        ({"ttlMillis": -7, "maxRetry": -7}, HOUR, 10),
        ({"ttlMillis": "", "maxRetry": ""}, HOUR, 10),
        ({"ttlMillis": 5_000, "maxRetry": 0}, 5_000, 0),
        ({"ttlMillis": 1, "maxRetry": 3}, 1, 3),
    ],
)
def test_ttl_and_retries(
    camellia: Any, topic: str, params: dict[str, Any], ttl: int, retry: int
) -> None:
    found = camellia.send(topic, delay=60_000, **params)
    assert found["expireTime"] - found["triggerTime"] == ttl
    assert found["maxRetry"] == retry


def test_an_empty_id_is_as_none(camellia: Any, topic: str) -> None:
    assert len(camellia.send(topic, msgId="")["msgId"]) == 32


# --------------------------------------------------------------------------- dedup


@pytest.mark.parametrize("state", [1, 2, 3])
def test_a_living_message_wins_over_its_repeat(camellia: Any, topic: str, state: int) -> None:
    first = camellia.send(topic, "first", 60_000 if state == 1 else 0, msgId="a")
    if state == 3:
        camellia.pull_one(topic)
    again = camellia.send(topic, "second", 0, msgId="a")
    assert again["msg"] == "first"
    assert again["produceTime"] == first["produceTime"]
    assert again["triggerTime"] == first["triggerTime"]
    assert again["status"] == state
    assert len(camellia.pull(topic, batch=10)) == (1 if state == 2 else 0)


@pytest.mark.parametrize("how", ["acked", "deleted", "released", "expired", "dead"])
def test_an_ended_message_is_replaced(camellia: Any, topic: str, how: str) -> None:
    ttl = 1 if how == "expired" else 60_000
    camellia.send(topic, "first", msgId="a", maxRetry=0, ttlMillis=ttl)
    if how == "acked":
        camellia.ack(topic, camellia.pull_one(topic)["msgId"])
    elif how == "dead":
        camellia.ack(topic, camellia.pull_one(topic)["msgId"], done=False)
    elif how == "expired":
        camellia.await_status(topic, "a", 5)
    else:
        assert camellia.delete(topic, "a", release=str(how == "released").lower()) == 200
    again = camellia.send(topic, "second", msgId="a")
    assert (again["msg"], again["retry"]) == ("second", 0)
    found = camellia.pull(topic, batch=10)
    assert [m["msg"] for m in found] == ["second"], "once, and not the one that was deleted"


# --------------------------------------------------------------------------- pull


def test_a_pulled_message_shows_three_and_its_attempt(camellia: Any, topic: str) -> None:
    sent = camellia.send(topic, "m")
    (found,) = camellia.pull(topic)
    assert found == {**sent, "status": 3, "retry": 1}
    assert camellia.get(topic, sent["msgId"]) == found


@pytest.mark.parametrize(("batch", "got"), [(None, 1), (0, 1), (-3, 1), (2, 2), (99_999, 5)])
def test_batch(camellia: Any, topic: str, batch: int | None, got: int) -> None:
    for _ in range(5):
        camellia.send(topic)
    assert len(camellia.pull(topic, batch=batch)) == got


@pytest.mark.parametrize("timeout", [0, -1, None])
def test_the_default_ack_timeout_is_thirty_seconds(
    camellia: Any, broker: Any, topic: str, timeout: int | None
) -> None:
    before = time.time_ns() // 1_000_000
    camellia.send(topic, msgId="a")
    camellia.pull(topic, ackTimeoutMillis=timeout)
    until = broker.call("GET", f"/v1/topics/{topic}/messages/a").json["lease_until_ms"]
    assert before + 30_000 <= until <= time.time_ns() // 1_000_000 + 30_000


def test_an_ack_timeout_over_the_limit_is_refused_and_takes_nothing(
    camellia: Any, topic: str
) -> None:
    camellia.send(topic)
    answer = camellia.call("pullMsg", topic=topic, ackTimeoutMillis=10**12)
    assert answer["code"] == 400
    assert len(camellia.pull(topic)) == 1


# --------------------------------------------------------------------------- long poll


def test_a_long_poll_that_finds_nothing_answers_empty_at_its_end(camellia: Any, topic: str) -> None:
    began = time.monotonic()
    answer = camellia.call("longPollingMsg", topic=topic, longPollingTimeoutMillis=400)
    assert answer == {"code": 200, "delayMsgList": []}
    assert time.monotonic() - began >= 0.4


# --------------------------------------------------------------------------- ack


def test_ack_of_unknown_things_is_success(camellia: Any, topic: str) -> None:
    camellia.ack(topic, "never", done=True)
    camellia.ack(topic, "never", done=False)
    camellia.send(topic, msgId="a", delay=60_000)
    camellia.ack(topic, "never", done=True)
    assert camellia.status(topic, "a") == 1


def to_state(camellia: Any, topic: str, state: int) -> None:
    """Bring message "a" into a state."""
    ttl = 1 if state in (5, 6) else 60_000
    camellia.send(topic, msgId="a", delay=60_000 if state == 1 else 0, ttlMillis=ttl, maxRetry=3)
    if state == 6:
        # Its ttl has to outlive one delivery.
        camellia.await_status(topic, "a", 5)
        camellia.send(topic, msgId="a", maxRetry=0)
    if state in (3, 4, 6):
        camellia.pull_one(topic)
    if state in (4, 6):
        camellia.ack(topic, "a", done=state == 4)
    if state == 5:
        camellia.await_status(topic, "a", 5)
    if state == 7:
        assert camellia.delete(topic, "a") == 200
    assert camellia.status(topic, "a") == state


@pytest.mark.parametrize("state", [1, 2, 3, 4, 5, 6, 7])
def test_ack_true_makes_it_four_whatever_it_was(camellia: Any, topic: str, state: int) -> None:
    to_state(camellia, topic, state)
    camellia.ack(topic, "a")
    assert camellia.status(topic, "a") == 4
    assert camellia.pull(topic, batch=10) == []
    info = camellia.info(topic)
    assert (info["waitingQueueSize"], info["readyQueueSize"], info["ackQueueSize"]) == (0, 0, 0)


@pytest.mark.parametrize("state", [1, 2, 4, 5, 6, 7])
def test_ack_false_does_nothing_unless_it_is_being_consumed(
    camellia: Any, topic: str, state: int
) -> None:
    to_state(camellia, topic, state)
    before = camellia.get(topic, "a")
    camellia.ack(topic, "a", done=False)
    assert camellia.get(topic, "a") == before
    assert len(camellia.pull(topic, batch=10)) == (1 if state == 2 else 0)


def test_ack_false_gives_it_back_at_once_still_shown_as_consuming(
    camellia: Any, topic: str
) -> None:
    to_state(camellia, topic, 3)
    camellia.ack(topic, "a", done=False)
    shown = camellia.get(topic, "a")
    assert (shown["status"], shown["retry"]) == (3, 1)
    (found,) = camellia.pull(topic)
    assert found["retry"] == 2
    assert camellia.pull(topic) == []


# --------------------------------------------------------------------------- delete


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("state", [1, 2, 3, 4, 5, 6, 7])
def test_delete(camellia: Any, topic: str, state: int, release: bool) -> None:
    to_state(camellia, topic, state)
    code = camellia.delete(topic, "a", release=str(release).lower())
    assert code == (200 if state in (1, 2, 3) else 404)
    if release:
        assert camellia.get(topic, "a") is None
    else:
        assert camellia.status(topic, "a") == (7 if state in (1, 2, 3) else state)
    assert camellia.pull(topic, batch=10) == []
    assert camellia.delete(topic, "a") == 404


def test_an_ack_after_the_delete_makes_it_four_while_it_is_kept(camellia: Any, topic: str) -> None:
    to_state(camellia, topic, 3)
    assert camellia.delete(topic, "a") == 200
    camellia.ack(topic, "a")
    assert camellia.status(topic, "a") == 4
    assert camellia.delete(topic, "a", release="true") == 404
    camellia.ack(topic, "a")
    assert camellia.status(topic, "a") is None


def test_delete_of_the_unknown(camellia: Any, topic: str) -> None:
    assert camellia.call("deleteMsg", topic=topic, msgId="x") == {"code": 404, "msg": None}


# --------------------------------------------------------------------------- life


def test_a_delivered_message_past_its_ttl_is_six_even_while_consumed(
    camellia: Any, topic: str
) -> None:
    camellia.send(topic, msgId="a", ttlMillis=3_000)
    camellia.pull_one(topic, ackTimeoutMillis=60_000)
    assert camellia.status(topic, "a") == 3
    time.sleep(3.01)
    assert camellia.status(topic, "a") == 6
    assert camellia.info(topic)["ackQueueSize"] == 0
    camellia.ack(topic, "a")
    assert camellia.status(topic, "a") == 4


def test_an_ack_timeout_past_the_ttl_ends_it(camellia: Any, topic: str) -> None:
    camellia.send(topic, msgId="a", ttlMillis=2_000)
    camellia.pull_one(topic, ackTimeoutMillis=2_500)
    await_that(lambda: camellia.status(topic, "a") == 6)
    time.sleep(1)
    assert camellia.pull(topic) == []
    assert camellia.status(topic, "a") == 6


def test_messages_of_other_faces_are_seen_and_settled(
    camellia: Any, broker: Any, topic: str
) -> None:
    sent = broker.post(f"/v1/topics/{topic}/messages", {"body": "native", "id": "a"})
    assert sent["result"] == "created"
    found = camellia.pull_one(topic)
    assert (found["msg"], found["msgId"]) == ("native", "a")
    camellia.ack(topic, "a")
    assert broker.call("GET", f"/v1/topics/{topic}/messages/a").json["state"] == "acked"
    own = broker.post(f"/v1/topics/{topic}/messages", {"body": "no id"})["id"]
    assert camellia.pull_one(topic)["msgId"] == own
    camellia.ack(topic, own)
    assert camellia.status(topic, own) == 4


def test_bytes_that_are_no_text_show_as_replacement_characters(
    camellia: Any, broker: Any, topic: str
) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body_base64": "/2E=", "id": "a"})
    assert camellia.get(topic, "a")["msg"] == "\ufffda"
