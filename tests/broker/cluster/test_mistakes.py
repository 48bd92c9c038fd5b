"""Mistakes of operators, one by one, on real nodes: no harm is done, and a line says what to do.

`random_operator/` makes them at any moment and under load; docs/TESTING.md names the other tests of
failures and mistakes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.growing import Growing
from tests.broker.cluster.members.test_recovering import send, there
from tests.broker.cluster.random_operator.nodes import Nodes

READY = "/readyz"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path)
    yield made
    made.clean_up()


def wipe(nodes: Growing, *lost: int) -> None:
    nodes.kill(*[node for node in lost if node in nodes.running])
    for node in lost:
        shutil.rmtree(nodes.data_dir(node))


def test_the_option_for_a_new_cluster_is_left_in_the_unit(nodes: Growing) -> None:
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    cluster = nodes.status(1)["cluster_id"]
    nodes.stop()
    nodes.start(1, 2, 3, new_cluster=True)
    assert there(nodes, "a")
    assert {nodes.status(node)["cluster_id"] for node in (1, 2, 3)} == {cluster}
    # One is blank: it joins as a learner and votes soon.
    lost = nodes.followers()[0]
    wipe(nodes, lost)
    nodes.start(lost, new_cluster=True)
    nodes.until(lambda: "this node joins as a learner" in nodes.log_path(lost).read_text())
    nodes.all_vote(lost)
    nodes.caught_up()
    # Two blank ones, alone: they wait for the third one, and say so.
    keeper, *blank = (lost, *(node for node in (1, 2, 3) if node != lost))
    nodes.stop(keeper)
    wipe(nodes, *blank)
    nodes.start(*blank, new_cluster=True, wait=False)
    for node in blank:
        nodes.until(lambda node=node: nodes.status(node).get("role") == "joining")
        said = nodes.call(node, "GET", READY)
        assert said.status == 503
        assert b"waits for all other members" in said.body
    # With the third one, which holds the data: no new cluster is founded, and nobody takes sends,
    # since a majority of the disks is lost.
    nodes.start(keeper, wait=False)
    for node in blank:
        nodes.until(lambda node=node: nodes.status(node).get("role") == "learner")
    # It serves HTTP a moment after it has met the others, and has its log applied a moment later.
    nodes.until(lambda: nodes.status(keeper).get("cluster_id") == cluster)
    path = "/v1/topics/t/messages/a?read=local"
    nodes.until(lambda: nodes.call(keeper, "GET", path).status == 200)
    body = {"id": "b", "body": "b"}
    answers = [nodes.call(each, "POST", "/v1/topics/t/messages", body) for each in (1, 2, 3)]
    assert {answer.status for answer in answers} <= {307, 503}, answers


def test_a_larger_file_on_an_emptied_folder_splits_nothing(nodes: Growing) -> None:
    """Three nodes; one is emptied and gets a file of five, as do two new ones. It even leads."""
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    node = nodes.followers()[-1]
    others = [each for each in (1, 2, 3) if each != node]
    wipe(nodes, node)
    nodes.file_for(node, nodes.http)
    nodes.start(node)
    nodes.all_vote(node)

    def leads() -> bool:
        nodes.call(nodes.leader(), "POST", "/v1/cluster/handover", {"to": node})
        return nodes.leader() == node

    nodes.until(leads)
    for new in (4, 5):
        nodes.file_for(new, nodes.http)
        nodes.start(new, wait=False)
        nodes.until(lambda new=new: nodes.status(new))
    assert len(nodes.status(node)["members"]) == 3
    send(nodes, "b")
    nodes.kill(*others)
    body = {"id": "c", "body": "c"}
    for each in (node, 4, 5):
        answer = nodes.call(each, "POST", "/v1/topics/t/messages", body)
        assert answer.status != 200, answer
    nodes.kill(node, 4, 5)
    nodes.start(*others)
    for name in "ab":
        assert there(nodes, name)


def test_a_leader_without_space_loses_nothing(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    try:
        nodes.found(1, 2, 3)
        send(nodes, "a")
        leader = nodes.leader()
        nodes.full.add(leader)
        nodes.control(leader)
        body = {"id": "b", "body": "b", "delay_ms": 3_600_000}
        nodes.until(
            lambda: (
                nodes.call(leader, "POST", "/v1/topics/t/messages", body).status in (507, 307, 503)
            )
        )
        # Another node leads soon; without any space this one cannot promise to follow it.
        nodes.until(lambda: b"delaylog_disk_full 1.0" in nodes.call(leader, "GET", "/metrics").body)
        nodes.full.clear()
        nodes.control(leader)
        nodes.until(
            lambda: nodes.call(nodes.leader(), "POST", "/v1/topics/t/messages", body).status == 200
        )
        for name in "ab":
            assert there(nodes, name)
        assert set(nodes.stop()) == {0}
    finally:
        nodes.clean_up()


def test_a_members_folder_without_its_meta_is_refused(nodes: Growing) -> None:
    """It does not know what it has promised."""
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    node = nodes.followers()[0]
    nodes.stop(node)
    (nodes.data_dir(node) / "meta").unlink()
    nodes.start(node, wait=False)
    assert nodes.ended(node) == 2
    assert "empty the folder, and the node joins as a learner" in nodes.log_path(node).read_text()
    shutil.rmtree(nodes.data_dir(node))
    nodes.start(node)
    nodes.all_vote(node)
