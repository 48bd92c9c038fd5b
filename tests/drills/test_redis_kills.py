"""Redis clients lose nothing that was answered: kills of a broker, of leaders, and hand-overs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import RespClient
from tests.drills.redis_load import OwningClient

CLIENTS = 5
BUSY = "checkpoint_ms = 150\nkeyspace_bytes = 50000"
"""So that kills also meet checkpoints and snapshots."""


def judge(clients: list[OwningClient]) -> None:
    problems = [problem for client in clients for problem in client.problems]
    assert not problems, "\n".join(problems)[:10_000]


# --------------------------------------------------------------------------- one broker


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[..., RespBroker]]:
    made: list[RespBroker] = []

    def make(*options: str, limits: str = "") -> RespBroker:
        broker = RespBroker(tmp_path, "--resp", "RESP", *options, limits=limits)
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        broker.kill()


def kill_broker(broker: RespBroker, rounds: int, seed: int) -> None:
    random = Random(seed)

    def find() -> RespClient | None:
        with suppress(OSError):
            return broker.connect()
        return None

    clients = [OwningClient(f"c{n}", seed, find) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for _ in range(rounds):
            time.sleep(random.uniform(0.2, 1.2))
            broker.kill()
            broker.start()
            judge(clients)
        time.sleep(0.3)
    finally:
        for client in clients:
            client.stop()
    last = broker.connect()
    for client in clients:
        assert client.check(last) or client.problems
        client.drain(last)
    last.close()
    judge(clients)
    assert sum(client.answered for client in clients) > 50 * rounds, "there was a load"
    assert broker.stop() == 0
    broker.assert_clean_logs()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_three_kills(brokers: Callable[..., RespBroker], fsync: str) -> None:
    kill_broker(brokers("--resp-fsync", fsync, limits=BUSY), 3, 20130101)


@pytest.mark.drill
@pytest.mark.parametrize("fsync", ["always", "everysec"])
@pytest.mark.parametrize("limits", ["", BUSY])
def test_many_kills(brokers: Callable[..., RespBroker], fsync: str, limits: str) -> None:
    kill_broker(brokers("--resp-fsync", fsync, limits=limits), 100, 20131231)


# --------------------------------------------------------------------------- three nodes


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    made = ThreeNodes(tmp_path, redis=True, limits=f"[limits]\n{BUSY}\n")
    made.start(new_cluster=True)
    yield made
    made.clean_up()


def find_leader(nodes: ThreeNodes, at: int) -> RespClient | None:
    """As clients do: ask a node for its role, and go where it says."""
    port = nodes.resp[NODES[at % 3]]
    for _ in range(2):
        try:
            client = RespClient(port)
        except OSError:
            return None
        try:
            role = client.call("ROLE")
        except OSError:
            client.close()
            return None
        if isinstance(role, list) and role[0] == b"master":
            return client
        client.close()
        if not isinstance(role, list) or not role[2]:
            return None
        port = role[2]
    return None


def fail_leaders(nodes: ThreeNodes, rounds: int, seed: int) -> None:
    random = Random(seed)
    clients = [
        OwningClient(f"c{n}", seed, lambda at=n: find_leader(nodes, at))  # type: ignore[misc]
        for n in range(CLIENTS)
    ]
    nodes.leader()
    for client in clients:
        client.start()
    try:
        for turn in range(rounds):
            time.sleep(random.uniform(0.5, 2.0))
            leader = nodes.leader()
            if turn % 2:
                nodes.call(leader, "POST", "/v1/cluster/handover", {})
            else:
                nodes.kill(leader)
                nodes.leader()
                time.sleep(random.uniform(0.0, 0.5))
                nodes.start(leader)
            judge(clients)
        time.sleep(1)
    finally:
        for client in clients:
            client.stop()
    last = nodes.until(lambda: find_leader(nodes, 0))
    for client in clients:
        assert client.check(last) or client.problems
    held = [client.held_by(last) for client in clients]
    nodes.caught_up()
    for node in NODES:
        follower = RespClient(nodes.resp[node])
        assert [client.held_by(follower) for client in clients] == held
        follower.close()
    for client in clients:
        client.drain(last)
    last.close()
    judge(clients)
    assert sum(client.answered for client in clients) > 50 * rounds, "there was a load"
    assert set(nodes.stop()) == {0}, nodes.tails()
    for node in NODES:
        assert not [line for line in nodes.log_lines(node) if "exception" in line], node


def test_a_kill_and_hand_overs(nodes: ThreeNodes) -> None:
    fail_leaders(nodes, 4, 20130101)


@pytest.mark.drill
def test_many_leaders(nodes: ThreeNodes) -> None:
    fail_leaders(nodes, 100, 20131231)
