"""A held cluster: the hold of a restored backup is its state, whoever leads."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.programs import run_program
from tests.starts.warm import PROGRAM

HOLD = "/v1/hold"
RECEIVE = "/v1/topics/t/receive"


def receives(nodes: ThreeNodes) -> int:
    """The status of a receive, for which a leader that has just come may have to be waited for."""

    def answered() -> int:
        answer = nodes.on_leader("POST", RECEIVE, {"lease_ms": 1}, later=(0, 307))
        waits = answer.status == 503 and answer.json["code"] != "held"
        return 0 if waits else answer.status

    return int(nodes.until(answered))


def readiness(nodes: ThreeNodes, node: int) -> object:
    """What a node says of its condition: a word, or the number of a problem while it starts."""
    answer = nodes.call(node, "GET", "/readyz")
    return answer.json["status"] if answer.body else None


def fail_over(nodes: ThreeNodes) -> None:
    old = nodes.leader()
    nodes.kill(old)
    nodes.until(lambda: nodes.leader() != old)
    nodes.start(old)


@pytest.fixture
def restored(start_three: Callable[..., ThreeNodes]) -> ThreeNodes:
    """Three nodes that were restored from one backup, with a message."""
    nodes = start_three()
    body = {"id": "a", "body": "x"}
    assert nodes.on_leader("POST", "/v1/topics/t/messages", body).status == 200
    backup = nodes.folder / "backup"
    nodes.stop()
    assert run_program(PROGRAM, "backup", nodes.data_dir(1), backup).returncode == 0
    for node in NODES:
        shutil.rmtree(nodes.data_dir(node))
        assert run_program(PROGRAM, "restore", backup, nodes.data_dir(node)).returncode == 0
    nodes.start(new_cluster=True)
    nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
    return nodes


def test_it_is_held_whoever_leads_until_it_is_released(restored: ThreeNodes) -> None:
    nodes = restored
    assert nodes.on_leader("GET", HOLD).json["held"]
    assert receives(nodes) == 503
    fail_over(nodes)
    assert receives(nodes) == 503
    orders = [nodes.data_dir(node) / "held" for node in NODES]
    nodes.until(lambda: not any(each.exists() for each in orders), "the log has the order")
    nodes.until(lambda: all(readiness(nodes, node) == "held" for node in NODES))
    assert nodes.on_leader("DELETE", HOLD).json["result"] == "done"
    assert receives(nodes) == 200
    for _ in range(2):
        fail_over(nodes)
        assert receives(nodes) == 200
    assert nodes.on_leader("GET", HOLD).json["held"] is False


def test_a_hold_ends_calls_on_the_leader_and_survives_it(
    start_three: Callable[..., ThreeNodes],
) -> None:
    nodes = start_three()
    held = nodes.on_leader("PUT", HOLD, {"note": "drill"})
    assert (held.status, held.json["result"]) == (200, "done")
    fail_over(nodes)
    shown = nodes.on_leader("GET", HOLD).json
    assert (shown["held"], shown["note"]) == (True, "drill")
    assert receives(nodes) == 503
