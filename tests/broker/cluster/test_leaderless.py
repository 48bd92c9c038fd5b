"""A cluster without a leader is still watched: with authentication, by real nodes that are alone.

Callers who may watch read the metrics and the view of each node; all else is refused to all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from urllib.request import Request, urlopen

import pytest

from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from tests.broker.cluster.test_access import bearer, make
from tests.broker.cluster.three_nodes import NODES, ThreeNodes

WATCHED = ("/metrics", "/camellia/metrics", "/v1/cluster", "/v1/clock", "/v1/session")
"""What is answered without a leader."""
CLOSED = (
    ("GET", "/v1/topics"),
    ("GET", "/v1/topics?read=local"),
    ("GET", "/v1/topics/t/stats?read=local"),
    ("GET", "/v1/overview?read=local"),
    ("GET", "/v1/hold?read=local"),
    ("GET", "/v1/principals?read=local"),
    ("GET", "/openapi.json"),
    ("POST", "/v1/topics/t/messages"),
    ("POST", "/v1/reload"),
    ("POST", "/v1/session"),
    ("POST", "/v1/cluster/handover"),
    ("POST", "/v1/clock"),
    ("POST", "/camellia/health/offline"),
)
GRANTS = {"metrics": "metrics", "operator": "operate", "viewer": "viewer"}


@pytest.fixture(scope="module")
def three(start_three: Callable[..., ThreeNodes]) -> ThreeNodes:
    return start_three(token=make_token(os.urandom(RANDOM_BYTES)))


@pytest.fixture(scope="module")
def tokens(three: ThreeNodes) -> dict[str, str]:
    """A token of each grant that watches, of a consumer, and of `gone`, which is revoked later."""
    made = {name: make(three, name, grant) for name, grant in GRANTS.items()}
    made["consumer"] = make(three, "consumer", "consumer")
    made["gone"] = make(three, "gone", "metrics")
    three.caught_up()
    return made


@pytest.fixture(scope="module")
def session(three: ThreeNodes, tokens: dict[str, str]) -> dict[str, str]:
    """The headers of a browser that has logged in at the node that is left."""
    node = three.followers()[0]
    opened = three.call(node, "POST", "/v1/session", {}, bearer(tokens["viewer"]))
    assert opened.status == 201, opened
    return {"Cookie": opened.headers["Set-Cookie"].partition(";")[0]}


@pytest.fixture(scope="module")
def left(three: ThreeNodes, tokens: dict[str, str], session: dict[str, str]) -> int:
    """The node that is left."""
    node = three.followers()[0]
    three.kill(*(each for each in NODES if each != node))
    closed(three, node)
    return node


def closed(three: ThreeNodes, node: int) -> None:
    """Wait until the node misses its leader."""
    three.until(lambda: three.call(node, "GET", "/v1/topics?read=local").status == 503)


def all_refused(three: ThreeNodes, node: int, headers: dict[str, str]) -> None:
    for method, path in CLOSED:
        answer = three.call(node, method, path, {} if method == "POST" else None, headers)
        assert answer.status in (403, 503), (path, answer)
        assert "Location" not in answer.headers


@pytest.mark.parametrize("name", GRANTS)
def test_who_watches_is_answered(
    three: ThreeNodes, left: int, tokens: dict[str, str], name: str
) -> None:
    for path in WATCHED:
        answer = three.call(left, "GET", path, None, bearer(tokens[name]))
        wanted = 403 if "metrics" in path and name == "operator" else 200
        assert answer.status == wanted, (path, answer)
    scraped = three.call(left, "GET", "/metrics", None, bearer(tokens["metrics"])).body.decode()
    assert "delaylog_cluster_leader_known 0.0" in scraped
    all_refused(three, left, bearer(tokens[name]))


def test_the_administrator_changes_nothing(three: ThreeNodes, left: int) -> None:
    assert three.call(left, "GET", "/v1/cluster").status == 200
    all_refused(three, left, {})


def test_nobody_else_is_answered(three: ThreeNodes, left: int, tokens: dict[str, str]) -> None:
    for path in WATCHED:
        refused = three.call(left, "GET", path, None, bearer(tokens["consumer"]))
        assert refused.status == 503, (path, refused)
        assert "with the right metrics or operate" in refused.json["detail"]
        for unknown in (bearer("x"), bearer(make_token(os.urandom(RANDOM_BYTES)))):
            assert three.call(left, "GET", path, None, unknown).status == 401
        assert three.call(left, "GET", path, None, {"Authorization": ""}).status == 401


def test_a_session_of_the_dashboard_watches(
    three: ThreeNodes, left: int, session: dict[str, str]
) -> None:
    token, three.token = three.token, ""
    try:
        for path in WATCHED:
            assert three.call(left, "GET", path, None, session).status == 200, path
        all_refused(three, left, session)
    finally:
        three.token = token


def test_live_reads_are_decided_on_one_by_one(
    three: ThreeNodes, left: int, tokens: dict[str, str]
) -> None:
    """Also those of a stream that was opened while there was a leader."""
    path = "/v1/live?read=/v1/cluster&read=/v1/topics%3Fread=local"
    request = Request(three.url(left) + path, headers=bearer(tokens["viewer"]))
    with urlopen(request, timeout=10) as stream:
        told = json.loads(stream.readline().removeprefix(b"data: "))
    assert told["/v1/cluster"]["role"] in ("follower", "candidate")
    assert told["/v1/topics?read=local"] is None


def test_a_node_that_starts_alone_is_watched(
    three: ThreeNodes, left: int, tokens: dict[str, str]
) -> None:
    """It missed a revocation; when it hears of a leader, the token is refused."""
    others = [node for node in NODES if node != left]
    three.kill(left)
    three.start(*others)
    assert three.call(three.leader(), "DELETE", "/v1/principals/gone").status == 200
    three.kill(*others)
    three.start(left)
    for name in ("metrics", "gone"):
        assert three.call(left, "GET", "/metrics", None, bearer(tokens[name])).status == 200
    three.start(*others)
    three.until(
        lambda: three.call(left, "GET", "/metrics", None, bearer(tokens["gone"])).status == 401
    )
    assert three.call(left, "GET", "/metrics", None, bearer(tokens["metrics"])).status == 200
