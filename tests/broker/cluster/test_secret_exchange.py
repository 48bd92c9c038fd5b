"""Three nodes exchange the secret of the cluster while they serve, as OPERATIONS says.

Method: each node has a file of its own, which is replaced; one client sends all the time; at each
step a node of the old state and one of the new state connect.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes

OLD, NEW = secrets.token_hex(32), secrets.token_hex(32)


class Own(ThreeNodes):
    """Three nodes, each with a file for the secret."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        text = self.config.read_text()
        for node in NODES:
            place = folder / f"files{node}"
            place.mkdir()
            self.configs[node] = place / "cluster.toml"
            self.configs[node].write_text(text)
            self.write(node, OLD)

    def write(self, node: int, *lines: str) -> None:
        """Replace the node's file by a rename, as one of an operator."""
        path = self.configs[node].with_name("cluster.secret")
        new = path.with_name("new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(path)

    def metric(self, node: int, name: str) -> float:
        text = self.call(node, "GET", "/metrics").body.decode()
        found = (line for line in text.splitlines() if line.startswith(name))
        return sum(float(line.split()[-1]) for line in found)

    def exchange(self, node: int, *lines: str) -> None:
        """Replace the file, and wait until the node has read it."""
        name = 'delaylog_reloads_total{result="ok",source="cluster-secret"}'
        before = self.metric(node, name)
        self.write(node, *lines)
        self.signal(node, signal.SIGHUP)
        self.until(lambda: self.metric(node, name) > before)

    def restart(self, node: int) -> None:
        self.stop(node)
        self.start(node)
        self.caught_up()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Own]:
    made = Own(tmp_path)
    made.start(new_cluster=True)
    made.until(lambda: made.status(made.leader()).get("version"))
    yield made
    made.clean_up()


def test_exchange_while_sends_go_on(nodes: Own) -> None:
    """No election, each send is answered and kept, and no datagram is refused."""
    leader, (one, other), ended, sent = nodes.leader(), nodes.followers(), Event(), [0]
    epoch = nodes.status(leader)["epoch"]
    body = {"body": "x", "delay_ms": 3_600_000}

    def send() -> None:
        while not ended.is_set():
            assert nodes.call(leader, "POST", "/v1/topics/t/messages", body).status == 200
            sent[0] += 1

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(send)
        try:
            for lines in ((OLD, NEW), (NEW, OLD), (NEW,)):
                nodes.exchange(one, *lines)
                # It connects with its new file to two nodes that have the old one.
                nodes.restart(one)
                nodes.exchange(leader, *lines)
                # It connects with its old file to two nodes that have the new one.
                nodes.restart(other)
                nodes.exchange(other, *lines)
        finally:
            ended.set()
        load.result()
    assert nodes.status(leader)["epoch"] == epoch, "nobody else was elected"
    assert sent[0] > 20
    topic = nodes.call(leader, "GET", "/v1/topics/t").json
    assert topic["counts"]["waiting"] == sent[0]
    for node in NODES:
        refused = 'delaylog_cluster_election_datagrams_refused_total{reason="unauthentic"}'
        assert nodes.metric(node, refused) == 0
        assert nodes.metric(node, 'delaylog_cluster_peers_refused_total{reason="wrong_key"}') == 0
    # Whoever has the old secret only is a stranger now.
    nodes.write(other, OLD)
    nodes.stop(other)
    nodes.start(other)
    text = "does not know the secret"
    nodes.until(lambda: text in nodes.log_path(other).read_text())
    assert other not in {
        each["node"] for each in nodes.status(leader)["members"] if each["connected"]
    }


def test_a_bad_file_changes_nothing(nodes: Own) -> None:
    leader = nodes.leader()
    nodes.write(leader, "not a secret")
    nodes.signal(leader, signal.SIGHUP)
    name = 'delaylog_reloads_total{result="failed",source="cluster-secret"}'
    nodes.until(lambda: nodes.metric(leader, name) > 0)
    errors = [x["message"] for x in nodes.log_lines(leader) if x["level"] == "error"]
    assert errors[-1].startswith("cluster-secret stays as it was: secret_file ")
    assert "not a secret" not in errors[-1]
    nodes.restart(nodes.followers()[0])
