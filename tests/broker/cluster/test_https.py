"""Three nodes whose clients use TLS: redirects, calls that a node forwards, and the SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from delaylog.client import Client
from tests.broker.cluster.three_nodes import ThreeNodes
from tests.broker.host.tls.listening import Files


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    """Their cluster file has https URLs; all have one certificate, and trust its CA."""
    files = Files(tmp_path)
    (tmp_path / "ca.pem").write_bytes(files.authority.pem)
    options = f'tls_cert = "{tmp_path}/broker.pem"\ntls_ca = "{tmp_path}/ca.pem"\n'
    made = ThreeNodes(tmp_path, limits=options)
    text = made.config.read_text()
    made.config.write_text(text.replace('http = "127', 'http = "https://127'))
    made.tls = files.client()
    yield made
    made.kill()


def test_clients_reach_the_leader_by_any_node(nodes: ThreeNodes) -> None:
    nodes.start(new_cluster=True)
    # The first leader puts the members into the log, in a second epoch of its own.
    nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
    leader, (follower, _) = nodes.leader(), nodes.followers()
    path = "/v1/topics/t/messages"
    away = nodes.call(follower, "POST", path, {"body": "x"})
    assert (away.status, away.headers["Location"]) == (
        307,
        f"https://{nodes.address(leader)}{path}",
    )
    url = f"https://{nodes.address(follower)}"
    with Client(url, tls=nodes.tls) as client:
        client.send("t", "by the SDK")
        assert [message.text for message in client.receive("t", wait=timedelta(seconds=5))] == [
            "by the SDK"
        ]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"topic=c&msg=x&delayMillis=1"
    sent = nodes.call(follower, "POST", "/camellia/delayQueue/sendMsg", body, form)
    assert (sent.status, json.loads(sent.body)["code"]) == (200, 200)
    logs = "".join(nodes.log_path(node).read_text() for node in nodes.running)
    assert "the cluster sends clients of this node to" not in logs
    assert set(nodes.stop()) == {0}
