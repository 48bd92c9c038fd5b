"""Redis clients lose nothing that was answered: kills of a broker, of leaders, and hand-overs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import RespClient
from tests.drills.redis_load import OwningClient

CLIENTS = 5
BUSY = {
    "delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 150,
    "delaylog.broker.engine.keyspace.keyspace_snapshots.SNAPSHOT_BYTES": 50_000,
}
"""So that kills also meet checkpoints and snapshots."""


def judge(clients: list[OwningClient]) -> None:
    problems = [problem for client in clients for problem in client.problems]
    assert not problems, "\n".join(problems)[:10_000]


# --------------------------------------------------------------------------- one broker


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[..., RespBroker]]:
    made: list[RespBroker] = []

    def make(*options: str, **how: Any) -> RespBroker:
        broker = RespBroker(tmp_path, "--resp", "RESP", *options, **how)
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
        assert client.drain(last), f"{len(client.acknowledged)} messages are lost"
    last.close()
    judge(clients)
    assert sum(client.answered for client in clients) > 50 * rounds, "there was a load"
    broker.end_well()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_three_kills(brokers: Callable[..., RespBroker], fsync: str) -> None:
    kill_broker(brokers("--resp-fsync", fsync, constants=BUSY), 3, 20130101)


@pytest.mark.drill
@pytest.mark.parametrize("fsync", ["always", "everysec"])
@pytest.mark.parametrize("constants", [{}, BUSY])
def test_many_kills(
    brokers: Callable[..., RespBroker], fsync: str, constants: dict[str, float]
) -> None:
    kill_broker(brokers("--resp-fsync", fsync, constants=constants), 100, 20131231)


# --------------------------------------------------------------------------- three nodes


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    made = ThreeNodes(tmp_path, redis=True, constants=BUSY)
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


def with_leader(nodes: ThreeNodes, ask: Callable[[RespClient], bool]) -> bool:
    """What the leader is asked; False if there was none, or not for long enough."""
    found = find_leader(nodes, 0)
    if found is None:
        return False
    try:
        return ask(found)
    except OSError:
        return False
    finally:
        found.close()


def holds_all(nodes: ThreeNodes, node: int, clients: list[OwningClient]) -> bool:
    """Whether a node, a follower too, shows what all clients must find."""
    at = RespClient(nodes.resp[node])
    try:
        return all(client.is_held_by(at) for client in clients)
    except OSError:
        return False
    finally:
        at.close()


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
    # On a busy machine the leader may change by itself now too.
    for client in clients:
        nodes.until(lambda each=client: with_leader(nodes, each.check) or each.problems)
    judge(clients)
    nodes.caught_up()
    for node in NODES:
        nodes.until(lambda at=node: holds_all(nodes, at, clients), f"node {node} holds other keys")
    for client in clients:
        nodes.until(lambda each=client: with_leader(nodes, each.drain) or each.problems)
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
