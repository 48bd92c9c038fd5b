"""Three nodes whose peers are names, and a member that gets a name while the cluster runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes


@pytest.fixture
def three_named(tmp_path: Path) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path)
    text = nodes.config.read_text()
    nodes.config.write_text(text.replace('peer = "127.0.0.1:', 'peer = "localhost:'))
    yield nodes
    nodes.clean_up()


def test_names_elect_and_fail_over(
    three_named: ThreeNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each node tells its service manager that it is ready, once it knows a leader."""
    nodes = three_named
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        nodes.start(1, wait=False, new_cluster=True)
        # It waits for the others, and says so.
        assert manager.recv(4_096).startswith(b"STATUS=this node waits for all other members")
        nodes.start(2, 3, new_cluster=True)
        ready = set()
        while len(ready) < len(NODES):
            told = manager.recv(4_096).decode().splitlines()
            if "READY=1" in told:
                assert told == ["READY=1", "STATUS=serving"]
                ready.add(len(ready))
    monkeypatch.delenv("NOTIFY_SOCKET")
    leader = nodes.leader()
    nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
    assert nodes.status(leader)["elections"] == "peers"
    for each in nodes.status(leader)["members"]:
        assert each["peer"] == f"localhost:{nodes.peers[each['node']]}"
    assert nodes.on_leader("POST", "/v1/topics/t/messages", {"body": "x"}).status == 200
    nodes.kill(leader)
    nodes.leader()
    nodes.start(leader)
    nodes.caught_up()


def test_a_member_moves_to_a_name(start_three: Callable[..., ThreeNodes]) -> None:
    """Nodes of numeric addresses may elect by raftos; with a name they elect without it."""
    nodes = start_three()
    follower = nodes.followers()[0]
    contact = {"peer": f"localhost:{nodes.peers[follower]}"}
    body = {"action": "move", "nodes": [str(follower)], **contact}
    answer = nodes.on_leader("POST", "/v1/cluster/members", body, later=(0, 307, 409, 503))
    assert answer.status == 200, answer
    nodes.until(lambda: all(nodes.status(node).get("elections") == "peers" for node in NODES))
    leader = nodes.leader()
    nodes.kill(leader)
    assert nodes.leader() != leader
    nodes.start(leader)
    nodes.caught_up()
