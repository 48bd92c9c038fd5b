"""Elections of real nodes: with raftos, without it, on some nodes only, and with its path blocked.

Method: `delaylog serve` processes in which raftos cannot be imported, or whose election datagrams
go to ports that nobody reads. Each cluster is shared by its scenes, in order.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes, steady

FAR = {"body": "x", "delay_ms": 3_600_000}


@pytest.fixture(
    scope="module", params=[(), (1,), (1, 2), NODES], ids=["raftos", "one", "two", "peers"]
)
def nodes(
    request: pytest.FixtureRequest, start_three: Callable[..., ThreeNodes]
) -> Iterator[ThreeNodes]:
    """A cluster in which raftos is missing on some nodes."""
    made = start_three(without_raftos=request.param)
    made.followers()
    yield made
    made.clean_up()


def replaced(nodes: ThreeNodes, old: int) -> int:
    """The next leader, which takes messages."""
    left = [node for node in nodes.running if node != old]

    def next_one() -> int | None:
        found = [node for node in left if nodes.status(node).get("role") == "leader"]
        return found[0] if found else None

    def taken() -> int | None:
        # Not only once: on a busy machine it may lose the lead again.
        leader = next_one()
        if leader and nodes.call(leader, "POST", "/v1/topics/t/messages", FAR).status == 200:
            return leader
        return None

    leader: int = nodes.until(taken, "no other node leads")
    return leader


def leaderships(nodes: ThreeNodes) -> int:
    nodes.leader()
    return nodes.unplanned() + nodes.handed_over


def test_what_each_node_elects_by(nodes: ThreeNodes, request: pytest.FixtureRequest) -> None:
    without = request.node.callspec.params["nodes"]
    for node in NODES:
        by = "peers" if node in without else "raftos"
        assert nodes.status(node)["elections"] == by


def test_a_killed_leader_is_replaced(nodes: ThreeNodes) -> None:
    for _ in range(2):
        old = nodes.leader()
        nodes.kill(old)
        replaced(nodes, old)
        nodes.start(old)
        nodes.followers()


def test_a_leader_that_hangs_is_replaced_and_returns_as_a_follower(nodes: ThreeNodes) -> None:
    old = nodes.leader()
    nodes.signal(old, signal.SIGSTOP)
    try:
        replaced(nodes, old)
    finally:
        nodes.signal(old, signal.SIGCONT)
    nodes.until(lambda: nodes.status(old).get("role") == "follower")
    nodes.followers()


@steady
def test_a_leader_hands_over(nodes: ThreeNodes) -> None:
    for target in nodes.followers():
        _, answer = nodes.hand_over(target)
        assert answer.json["node"] == target
        assert nodes.leader() == target


def test_a_planned_stop_and_a_cold_start(nodes: ThreeNodes) -> None:
    assert set(nodes.stop()) == {0}
    nodes.start()
    nodes.followers()


def test_nothing_changes_while_nothing_is_wrong(nodes: ThreeNodes) -> None:
    """The two oracles of one node do not compete, nor do those of different nodes.

    Those that compete do so all the time; a machine that stalls elects once.
    """
    for _ in range(5):
        nodes.followers()
        before = leaderships(nodes)
        time.sleep(3.0)
        if leaderships(nodes) == before:
            return
    raise AssertionError(nodes.tails())


# --------------------------------------------------------------------------- a blocked path


def blocked(nodes: ThreeNodes, taken: ExitStack) -> None:
    """Write a cluster file for each node in which the others have UDP ports that nobody reads."""
    dead = {}
    for node in NODES:
        sock = taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.bind(("127.0.0.1", 0))
        dead[node] = sock.getsockname()[1]
    head = nodes.config.read_text().partition("[members.1]")[0]
    for me in NODES:
        lines = [head]
        for node in NODES:
            lines += [
                f"[members.{node}]",
                f'name = "{NAMES[node]}"',
                f'peer = "127.0.0.1:{nodes.peers[node]}"',
                f'http = "127.0.0.1:{nodes.http[node]}"',
                f"election_port = {nodes.peers[node] if node == me else dead[node]}",
            ]
        nodes.configs[me] = nodes.folder / f"cluster{me}.toml"
        nodes.configs[me].write_text("\n".join(lines) + "\n")


def test_a_blocked_path_prevents_no_election_and_is_told(tmp_path: Path) -> None:
    """At the first start, and when the leader is killed."""
    nodes = ThreeNodes(tmp_path)
    with ExitStack() as taken:
        taken.callback(nodes.clean_up)
        blocked(nodes, taken)
        nodes.start(new_cluster=True)
        old = nodes.leader()
        nodes.followers()
        said = "no election datagrams come from"

        def told() -> bool:
            return all(
                any(said in line.get("message", "") for line in nodes.log_lines(node))
                for node in NODES
            )

        nodes.until(told, "nobody warns of it")
        # The first line names one of the two, if its datagrams have been missing for longer.
        nodes.until(
            lambda: (
                [
                    each["datagrams_arrive"]
                    for each in nodes.status(old).get("members", ())
                    if each["node"] != old
                ]
                == [False] * 2
            )
        )
        nodes.kill(old)
        leader = replaced(nodes, old)
        nodes.start(old)
        nodes.followers()
        nodes.signal(leader, signal.SIGSTOP)
        try:
            replaced(nodes, leader)
        finally:
            nodes.signal(leader, signal.SIGCONT)


def test_a_taken_udp_port_is_told_and_the_node_goes_on(tmp_path: Path) -> None:
    nodes = ThreeNodes(tmp_path)
    with ExitStack() as taken:
        taken.callback(nodes.clean_up)
        other = taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        other.bind(("127.0.0.1", nodes.peers[1]))
        nodes.start(new_cluster=True)
        nodes.followers()
        assert {node: nodes.status(node)["elections"] for node in NODES} == {
            1: "peers",
            2: "raftos",
            3: "raftos",
        }
        lines = [line.get("message", "") for line in nodes.log_lines(1)]
        assert [line for line in lines if "cannot be used" in line and "elect over" in line]
