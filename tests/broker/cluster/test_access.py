"""Access control on three real nodes: each knows the principals, and revocations in a second."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from tests.broker.cluster.three_nodes import NODES, ThreeNodes, steady

LOCAL = "/v1/topics?read=local"


@pytest.fixture(scope="module")
def three(start_three: Callable[..., ThreeNodes]) -> Iterator[ThreeNodes]:
    three = start_three(token=make_token(os.urandom(RANDOM_BYTES)))
    yield three
    assert set(three.stop()) == {0}, three.tails()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make(three: ThreeNodes, name: str, *grants: str) -> str:
    answer = three.on_leader("PUT", f"/v1/principals/{name}", {"grants": grants})
    assert answer.status == 201, answer
    token: str = answer.json["token"]
    return token


def knows(three: ThreeNodes, node: int, token: str) -> bool:
    """Whether a node answers; before, it may ask to try again, but not say the token is wrong."""
    status = three.call(node, "GET", LOCAL, None, bearer(token)).status
    assert status in (200, 503)
    return status == 200


@steady
def test_every_node_knows_a_new_token_at_once(three: ThreeNodes) -> None:
    """Also one that has not applied it yet when the first call comes."""
    for _ in range(5):
        token = make(three, three.fresh("new"), "read")
        for node in three.followers():
            three.until(partial(knows, three, node, token))
            redirected = three.on_node(node, "GET", "/v1/topics", None, bearer(token))
            assert redirected.status == 307


@steady
def test_nobody_learns_of_the_leader_without_a_token(three: ThreeNodes) -> None:
    for node in NODES:
        for path in ("/v1/topics", LOCAL, "/v1/cluster", "/metrics"):
            answer = three.on_node(node, "GET", path, None, bearer("x"))
            assert answer.status == 401
            assert "Location" not in answer.headers
        ready = three.on_node(node, "GET", "/readyz", None, bearer("x"))
        assert (ready.status, ready.json) == (200, {"status": "ready"})


def test_a_revocation_is_in_force_everywhere_within_a_second(three: ThreeNodes) -> None:
    token = make(three, "gone", "read")
    for node in NODES:
        three.until(
            lambda node=node: three.call(node, "GET", LOCAL, None, bearer(token)).status == 200
        )
    assert three.on_leader("DELETE", "/v1/principals/gone").status == 200
    revoked = time.monotonic()

    def refused(node: int) -> bool:
        asked = time.monotonic()
        status = three.call(node, "GET", LOCAL, None, bearer(token)).status
        assert status != 200 or asked - revoked < 1.0, node
        return status == 401

    left = set(NODES)
    while left:
        left -= {node for node in left if refused(node)}
        assert time.monotonic() - revoked < three.wait_s, left


def test_principals_survive_a_failover(three: ThreeNodes) -> None:
    token = make(three, "kept", "admin:mine")
    leader = three.leader()
    three.kill(leader)
    three.until(three._leader, "no other leader")
    sent = three.on_leader("POST", "/v1/topics/mine/messages", {"body": "x"}, bearer(token))
    assert sent.status == 200
    three.start(leader)
    three.caught_up()
    assert three.on_node(leader, "GET", LOCAL, None, bearer(token)).status == 200


def test_a_node_without_a_leader_refuses(three: ThreeNodes) -> None:
    """It may not know of the newest revocation."""
    follower, other = three.followers()
    (leader,) = {*NODES} - {follower, other}
    for node in (leader, other):
        three.signal(node, signal.SIGSTOP)
    try:
        cut = time.monotonic()
        refused = three.until(
            lambda: (
                answer
                if (answer := three.call(follower, "GET", LOCAL)).status not in (200, 0)
                else None
            )
        )
        assert refused.status == 503
        assert "newest revocations" in refused.json["detail"]
        assert time.monotonic() - cut < 5
        assert three.call(follower, "GET", "/healthz").status == 200
    finally:
        for node in (leader, other):
            three.signal(node, signal.SIGCONT)
    three.leader()
    three.until(lambda: three.call(follower, "GET", LOCAL).status == 200)


def test_the_use_of_a_follower_is_known_to_each_leader(three: ThreeNodes) -> None:
    """A principal whose calls a leader does not see is in use all the same."""
    token = make(three, "used", "read")
    three.until(partial(knows, three, three.followers()[0], token))

    def used_ms() -> int | None:
        shown: int | None = three.on_leader("GET", "/v1/principals/used").json["used_ms"]
        return shown

    seen_ms = three.until(used_ms, "the leader does not hear of it")
    leader = three.leader()
    three.kill(leader)
    three.until(three._leader, "no other leader")
    three.until(lambda: used_ms() == seen_ms, "the next leader does not know it")
    three.start(leader)


def test_the_use_of_many_principals_of_a_follower_is_known_to_the_leader(three: ThreeNodes) -> None:
    """More than one status between nodes has room for."""
    names = [f"{number:0100}" for number in range(60)]
    tokens = [make(three, name, "read") for name in names]
    follower = three.followers()[0]
    for token in tokens:
        three.until(partial(knows, three, follower, token))

    def known() -> bool:
        listed = three.on_leader("GET", "/v1/principals").json["principals"]
        return all(each["used_ms"] for each in listed if each["principal"] in names)

    three.until(known, "the leader does not hear of all")
