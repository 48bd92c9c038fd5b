"""Three nodes exchange the secret of the cluster while they serve, as docs/TLS.md says.

Method: each node has a file of its own, which is replaced; one client sends all the time; at each
step a node of the old state and one of the new state connect.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.own_files import OwnFiles
from tests.broker.cluster.three_nodes import NODES, tries

OLD, NEW = secrets.token_hex(32), secrets.token_hex(32)


class Own(OwnFiles):
    """Three nodes, whose secrets are in hex, one a line."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for node in NODES:
            self.write(node, OLD)

    def write(self, node: int, *lines: str) -> None:
        """Replace the node's file by a rename, as one of an operator."""
        path = self.place(node) / "cluster.secret"
        new = path.with_name("new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(path)

    def exchange(self, node: int, *lines: str) -> None:
        """Replace the file, and wait until the node has read it."""
        name = 'delaylog_reloads_total{result="ok",source="cluster-secret"}'
        before = self.metric(node, name)
        self.write(node, *lines)
        self.signal(node, signal.SIGHUP)
        self.until(lambda: self.metric(node, name) > before)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Own]:
    made = Own(tmp_path)
    made.start(new_cluster=True)
    made.until(lambda: made.status(made.leader()).get("version"))
    yield made
    made.clean_up()


def test_exchange_while_sends_go_on(nodes: Own) -> None:
    """And no datagram is refused."""
    for each in tries(nodes):
        with each:
            leader, (one, other) = nodes.leader(), nodes.followers()
            with nodes.undisturbed():
                for lines in ((OLD, NEW), (NEW, OLD), (NEW,)):
                    nodes.exchange(one, *lines)
                    # It connects with its new file to two nodes that have the old one.
                    nodes.restart(one)
                    nodes.exchange(leader, *lines)
                    # It connects with its old file to two nodes that have the new one.
                    nodes.restart(other)
                    nodes.exchange(other, *lines)
            break
        nodes.stop()
        for node in NODES:
            nodes.write(node, OLD)
        nodes.start()
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
