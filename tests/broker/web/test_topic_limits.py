"""As many topics and groups as the limits say, and none on a full disk: more are refused, those
that exist go on.

Each face refuses in its own way, and a refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.broker.camellia.conftest import Camellia
from tests.broker.conftest import Broker

COLUMNS = {"v": 1, "n": 1, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"x"}
SEND = {"body": "x", "delay_ms": 3_600_000}


@pytest.fixture(scope="module")
def full(start_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker with as many topics as it may have."""
    broker = start_broker("--resp", "127.0.0.1:0", limits="topics_max = 3\ngroups_max = 2")
    for name in ("a", "b", "c"):
        broker.post(f"/v1/topics/{name}/messages", SEND)
    yield broker
    names = [each["topic"] for each in broker.call("GET", "/v1/topics").json["topics"]]
    assert names == ["a", "b", "c"]
    broker.end_well()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics/new/messages", SEND),
        ("POST", "/v1/topics/new/messages", [SEND, SEND]),
        ("POST", "/v1/ns/other/topics/new/messages", SEND),
        ("PUT", "/v1/topics/new", {}),
        ("PUT", "/v1/topics/new/groups/g", {}),
    ],
)
def test_http_refuses_new_topics(
    full: Broker, assert_problem: Callable[..., dict[str, Any]], method: str, path: str, body: Any
) -> None:
    problem = assert_problem(full.call(method, path, body), 429, "quota")
    assert problem["quota"] == "topics"
    assert "topics_max" in problem["detail"]


def test_topics_that_exist_go_on(full: Broker) -> None:
    full.post("/v1/topics/a/messages", SEND)
    assert full.call("PUT", "/v1/topics/b", {"max_retry": 3}).status == 200


def test_groups_have_a_limit_of_their_own(
    full: Broker, assert_problem: Callable[..., dict[str, Any]]
) -> None:
    assert full.call("PUT", "/v1/topics/a/groups/one").status == 201
    problem = assert_problem(full.call("PUT", "/v1/topics/a/groups/two"), 429, "quota")
    assert problem["quota"] == "groups"
    assert full.call("PUT", "/v1/topics/a/groups/one").status == 200


def test_camellia_refuses(full: Broker) -> None:
    answer = Camellia(full).call("sendMsg", topic="new", msg="x", delayMillis=60_000)
    assert answer["code"] != 200, answer
    assert "topics_max" in answer["msg"]


def test_redis_clients_are_refused(full: Broker) -> None:
    with redis_client(full) as client:
        with pytest.raises(redis.ResponseError, match="topics_max"):
            client.execute_command("DL.SEND", "new", "0", "x")
        client.execute_command("DL.SEND", "a", "60000", "x")


def redis_client(broker: Broker) -> redis.Redis:
    return redis.Redis(
        port=int(broker.ready_line.partition("resp=")[2].split()[0].rpartition(":")[2])
    )


def test_a_full_disk_makes_no_topics(
    sound_broker: Callable[..., Broker], assert_problem: Callable[..., dict[str, Any]]
) -> None:
    """The disk is too small for the reserve that the broker wants: 507 on each face, and new names
    do not eat what is reserved for deliveries.
    """
    broker = sound_broker("--resp", "127.0.0.1:0", limits=f"disk_reserve_bytes = {2**53}")
    for body in (SEND, [SEND, SEND]):
        assert_problem(broker.call("POST", "/v1/topics/a/messages", body), 507, "disk_full")
        key = {"Idempotency-Key": "k"}
        assert_problem(broker.call("POST", "/v1/topics/b/messages", body, key), 507, "disk_full")
    assert_problem(broker.bulk("/v1/topics/c/messages", COLUMNS), 507, "disk_full")
    with redis_client(broker) as client, pytest.raises(redis.ResponseError, match=r"^DISKFULL"):
        client.execute_command("DL.SEND", "d", "1000", "x")
    sent = Camellia(broker).call("sendMsg", topic="e", msg="x", delayMillis=1_000)
    assert sent["code"] == 500
    assert broker.call("GET", "/v1/topics").json["topics"] == []
