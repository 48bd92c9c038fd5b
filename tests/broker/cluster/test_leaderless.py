"""A cluster without a leader is still watched: with authentication, by real nodes that are alone.

Callers who may watch read the metrics and the view of each node; all else is refused to all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from delaylog.broker.camellia.face import LEADERLESS as OF_CAMELLIA
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.broker.web.app import LEADERLESS
from tests.broker.cluster.test_access import bearer, make
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes
from tests.broker.cluster.troubled import start
from tests.starts.warm import as_text, run_warm

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
    three.kept()
    return made


@pytest.fixture(scope="module")
def stays(three: ThreeNodes, tokens: dict[str, str]) -> int:
    """The node that will be left; tokens are known to it."""
    return three.followers()[0]


@pytest.fixture(scope="module")
def session(three: ThreeNodes, stays: int, tokens: dict[str, str]) -> dict[str, str]:
    """The headers of a browser that has logged in at the node that is left."""
    opened = three.on_node(stays, "POST", "/v1/session", {}, bearer(tokens["viewer"]))
    assert opened.status == 201, opened
    return {"Cookie": opened.headers["Set-Cookie"].partition(";")[0]}


@pytest.fixture(scope="module")
def left(three: ThreeNodes, stays: int, session: dict[str, str]) -> int:
    """The node that is left."""
    three.kill(*(each for each in NODES if each != stays))
    closed(three, stays)
    return stays


def test_nothing_else_is_answered_without_a_leader() -> None:
    """Each call that says so in the table, and each page, is tried below."""
    assert {*WATCHED} == LEADERLESS | OF_CAMELLIA


def closed(three: ThreeNodes, node: int) -> None:
    """Wait until the node misses its leader, and knows of no other one."""
    three.until(lambda: three.call(node, "GET", "/v1/topics?read=local").status == 503)
    three.until(lambda: three.status(node).get("leader", node) is None)


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
    assert three.on_leader("DELETE", "/v1/principals/gone").status == 200
    three.kill(*others)
    three.start(left)

    def answered(name: str) -> int:
        return three.call(left, "GET", "/metrics", None, bearer(tokens[name])).status

    # It is ready a moment before it has applied its log.
    three.until(lambda: answered("gone") == 200)
    assert answered("metrics") == 200
    three.start(*others)
    three.until(lambda: answered("gone") == 401)
    assert answered("metrics") == 200


def test_the_survivor_tells_the_doctor_what_it_sees(
    three: ThreeNodes, tokens: dict[str, str]
) -> None:
    left = three.followers()[0]
    others = [node for node in NODES if node != left]
    three.kill(*others)
    closed(three, left)
    token = {"DELAYLOG_TOKEN": tokens["operator"]}
    asked = as_text(run_warm("cluster", "doctor", "--url", three.url(left), environment=token))
    assert asked.returncode == 1, asked
    names = " and ".join(f"node {node} ({NAMES[node]})" for node in others)
    assert f"no leader: {names} do not answer" in asked.stdout, asked
    assert f"node {left} ({NAMES[left]}) is " in asked.stdout
    assert "connected to no other member; its newest epoch is" in asked.stdout
    assert f"it last heard node {others[0]}" in asked.stdout
    shown = as_text(run_warm("cluster", "status", "--url", three.url(left), environment=token))
    assert shown.returncode == 0, shown
    assert "this node knows no leader" in shown.stdout
    token = {"DELAYLOG_TOKEN": tokens["viewer"]}
    words = ("doctor", "broker", "--watch", "1s", "--url", three.url(left))
    broker = as_text(run_warm(*words, environment=token))
    assert "it knows no leader" in broker.stdout, broker
    three.start(*others)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ThreeNodes]:
    """Nodes that never had a leader."""
    nodes = ThreeNodes(tmp_path, token=make_token(os.urandom(RANDOM_BYTES)))
    yield nodes
    nodes.clean_up()


def test_before_the_first_leader_the_own_administrator_watches(fresh: ThreeNodes) -> None:
    """Each of them, whatever its role; nothing of it is left for a follower of another one."""
    fresh.start(1, 2, wait=False)
    for node in (1, 2):
        fresh.until(lambda node=node: fresh.status(node).get("role") == "learner")
        assert fresh.call(node, "GET", "/metrics").status == 200
        all_refused(fresh, node, {})
        detail = fresh.call(node, "GET", "/readyz").json["detail"]
        assert detail == "this node is a learner and has no data yet"
        for path in WATCHED:
            refused = fresh.call(node, "GET", path, None, bearer("x"))
            assert refused.status == 503
            assert "there is no leader yet" in refused.json["detail"]
        assert fresh.call(node, "GET", "/metrics", None, {"Authorization": ""}).status == 401
        unknown = fresh.call(node, "GET", "/readyz", None, bearer("x"))
        assert "a token shows why" in unknown.json["detail"]
    token = {"DELAYLOG_TOKEN": fresh.token}
    asked = as_text(run_warm("cluster", "doctor", "--url", fresh.url(1), environment=token))
    assert "node 1 (alpha) and node 2 (beta) started without --new-cluster" in asked.stdout, asked


def test_a_token_that_is_not_in_force_is_told(fresh: ThreeNodes) -> None:
    """The first leader's counts; the node with another one says so, and refuses it from then on."""
    first, other = fresh.token, make_token(os.urandom(RANDOM_BYTES))
    for node in NODES:
        fresh.token = other if node == 3 else first
        fresh.start(node, new_cluster=True, wait=False)
    said = "DELAYLOG_ADMIN_TOKEN of this node is not a valid token"

    def warned() -> list[int]:
        return [node for node in NODES if said in fresh.log_path(node).read_text()]

    wrong = fresh.until(lambda: (found := warned()) in ([3], [1, 2]) and found)
    fresh.token = first if wrong == [3] else other
    fresh.leader()
    for node in NODES:
        fresh.until(lambda node=node: fresh.status(node))
        refused = fresh.on_node(
            node, "GET", "/metrics", None, bearer(other if wrong == [3] else first)
        )
        assert refused.status == 401


def test_a_follower_that_hears_nothing_of_the_elected_leader_refuses(tmp_path: Path) -> None:
    """It may know who leads, by the election, and still misses revocations."""
    with start(tmp_path, token=make_token(os.urandom(RANDOM_BYTES))) as troubled:
        nodes = troubled.nodes
        tokens = {name: make(nodes, name, name) for name in ("viewer", "metrics")}
        nodes.caught_up()
        cut, _ = nodes.followers()
        troubled.disconnect("drop", cut, [node for node in NODES if node != cut])
        assert nodes.on_leader("DELETE", "/v1/principals/viewer").status == 200
        revoked = time.monotonic()

        def refused() -> bool:
            local = nodes.call(cut, "GET", "/v1/topics?read=local", None, bearer(tokens["viewer"]))
            return local.status == 503

        nodes.until(refused)
        assert time.monotonic() - revoked < 5
        while time.monotonic() - revoked < 5:
            assert refused()
            scraped = nodes.call(cut, "GET", "/metrics", None, bearer(tokens["metrics"]))
            assert scraped.status == 200
        troubled.heal()
        nodes.until(
            lambda: (
                nodes.call(
                    cut, "GET", "/v1/topics?read=local", None, bearer(tokens["viewer"])
                ).status
                == 401
            )
        )
