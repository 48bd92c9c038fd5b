"""Three nodes exchange the certificates of `[tls]`, then their authority, while they serve.

Method: every node has files of its own, which are replaced; one client sends all the time; at each
step a follower is restarted, since open connections use the old certificates.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.own_files import OwnFiles
from tests.broker.cluster.three_nodes import NAMES, NODES, tries
from tests.certificates import Authority, write_pair

TLS = '[tls]\nca = "nodes-ca.pem"\ncert = "node.pem"\nkey = "node.key"\n'


class Secure(OwnFiles):
    """Three nodes with `[tls]`."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        super().__init__(folder, TLS)
        self.trust(authority)
        self.issue(authority)

    def trust(self, *authorities: Authority) -> None:
        """Write the authorities of all nodes."""
        for node in NODES:
            content = b"".join(each.pem for each in authorities)
            (self.place(node) / "nodes-ca.pem").write_bytes(content)

    def issue(self, authority: Authority, **how: Any) -> None:
        """Write new certificates of all nodes."""
        for node in NODES:
            write_pair(self.place(node), "node", authority.issue(NAMES[node], **how))

    def reload(self, result: str = "ok") -> None:
        """Have all nodes read their files again, and wait until they have."""
        name = f'delaylog_reloads_total{{result="{result}",source="cluster-tls"}}'
        before = {node: self.metric(node, name) for node in NODES}
        for node in NODES:
            self.signal(node, signal.SIGHUP)
        for node in NODES:
            self.until(lambda node=node: self.metric(node, name) > before[node])

    def end_s(self, node: int, source: str) -> float:
        name = f'delaylog_certificate_expires_timestamp_seconds{{source="{source}"}}'
        return self.metric(node, name)


@pytest.fixture
def old() -> Authority:
    return Authority("old nodes")


@pytest.fixture
def nodes(tmp_path: Path, old: Authority) -> Iterator[Secure]:
    made = Secure(tmp_path, old)
    made.start(new_cluster=True)
    # The first leader puts the members into the log, in a second epoch of its own.
    made.until(lambda: made.status(made.leader()).get("version"))
    yield made
    made.clean_up()


def test_exchange_while_sends_go_on(nodes: Secure, old: Authority) -> None:
    """New certificates, then a new authority."""
    for each in tries(nodes):
        with each:
            exchange(nodes, old)
            break
        nodes.stop()
        nodes.trust(old)
        nodes.issue(old)
        nodes.start()


def exchange(nodes: Secure, old: Authority) -> None:
    leader, followers = nodes.leader(), nodes.followers()
    with nodes.undisturbed():
        first = nodes.end_s(leader, "node")
        nodes.issue(old, days=(-1, 60))
        nodes.reload()
        assert nodes.end_s(leader, "node") > first
        nodes.restart(followers[0])
        new = Authority("new nodes", days=(-1, 300))
        nodes.trust(old, new)
        nodes.reload()
        nodes.restart(followers[1])
        nodes.issue(new)
        nodes.reload()
        for follower in followers:
            nodes.restart(follower)
        nodes.trust(new)
        nodes.reload()
        for follower in followers:
            nodes.restart(follower)
    assert nodes.end_s(leader, "node_ca") > nodes.end_s(leader, "node")


def test_both_sides_name_the_peer_and_the_reason(nodes: Secure, old: Authority) -> None:
    """A follower comes back with the files of another authority. Doctors warn of an end that is
    near.
    """
    nodes.issue(old, days=(-300, 5))
    nodes.reload()
    leader, (follower, other) = nodes.leader(), nodes.followers()
    faults = nodes.status(leader)["certificate_faults"]
    assert [each["severity"] for each in faults] == ["warning"]
    assert "in less than 7 days" in faults[0]["text"]
    nodes.stop(follower)
    stranger = Authority("stranger")
    (nodes.place(follower) / "nodes-ca.pem").write_bytes(stranger.pem)
    write_pair(nodes.place(follower), "node", stranger.issue("x"))
    nodes.start(follower)

    def says(node: int, *texts: str) -> bool:
        lines = [line["message"] for line in nodes.log_lines(node)]
        return any(all(text in line for text in texts) for line in lines)

    for node in (leader, other):
        who = f"node {follower} ({NAMES[follower]})"
        nodes.until(
            lambda node=node, who=who: (
                says(node, who, "it refuses the certificate of this node: ")
                or says(node, who, "its certificate is refused: ")
            ),
            f"node {node} does not say why it does not reach {who}",
        )
        who = f"node {node} ({NAMES[node]})"
        nodes.until(
            lambda who=who: (
                says(follower, who, "it refuses the certificate of this node: ")
                or says(follower, who, "its certificate is refused: ")
            ),
            f"node {follower} does not say why it does not reach {who}",
        )


def test_bad_files_stay_outside(nodes: Secure, old: Authority) -> None:
    """Expired ones, and those of an authority that the others do not know: at a reload and at a
    start, with a line that says why.
    """
    leader, (follower, _) = nodes.leader(), nodes.followers()
    end_s = nodes.end_s(leader, "node")
    for authority, how, says in (
        (old, {"days": (-9, -1)}, "tls.cert: CN={} has expired: it ended on"),
        (Authority("other"), {}, "refuse it: unable to get local issuer certificate"),
    ):
        nodes.issue(authority, **how)
        nodes.reload("failed")
        errors = [x["message"] for x in nodes.log_lines(leader) if x["level"] == "error"]
        assert errors[-1].startswith("cluster-tls stays as it was: tls.cert")
        assert says.format(NAMES[leader]) in errors[-1]
        assert nodes.end_s(leader, "node") == end_s
    nodes.issue(old, days=(-9, -1))
    nodes.stop(follower)
    nodes.start(follower, wait=False)
    assert nodes.ended(follower) == 2
    assert "has expired" in nodes.log_path(follower).read_text()
    write_pair(nodes.place(follower), "node", old.issue("again"))
    nodes.start(follower)
    nodes.caught_up()
