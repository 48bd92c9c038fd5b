"""Members that come, go and move while messages are sent, on real nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from delaylog.client.child_broker import free_ports
from tests.broker.cluster.growing import ALL, Growing, Load
from tests.broker.cluster.three_nodes import steady, tries


@pytest.fixture
def nodes(tmp_path: Path, without_raftos: Sequence[int]) -> Iterator[Growing]:
    made = Growing(tmp_path, without_raftos=without_raftos)
    yield made
    made.clean_up()


@pytest.fixture
def without_raftos() -> Sequence[int]:
    """The nodes where raftos is not installed."""
    return ()


each_oracle = pytest.mark.parametrize("without_raftos", [(), ALL], ids=["raftos", "peers"])


@each_oracle
def test_from_one_to_three_to_five_and_back_under_load(nodes: Growing) -> None:
    """Nothing that was acknowledged is lost, and the nodes of the end hold it all."""
    nodes.found(1)
    with Load(nodes) as load:
        nodes.join(2, 3)
        assert nodes.changed("promote", 2, 3)["voters"] == ["alpha", "beta", "gamma"]
        nodes.join(4, 5)
        assert len(nodes.changed("promote", 4, 5)["voters"]) == 5
        # Two of five may fail.
        nodes.kill(2, 3)
        nodes.leader()
        nodes.start(2, 3)
        if nodes.leader() in (1, 2):
            nodes.until(lambda: _handed_over(nodes, 5))
        assert nodes.changed("remove", 1, 2)["voters"] == ["gamma", "node4", "node5"]
        nodes.stop(1, 2)
        before = len(load.acknowledged)
        nodes.until(lambda: len(load.acknowledged) > before + 20)
    load.all_there()
    # A removed node disturbs nobody. A machine that stalls elects now and then, too.
    for last in (False, False, True):
        epoch = nodes.unplanned()
        nodes.start(1, wait=False)
        nodes.until(lambda: nodes.status(1).get("role"))
        if nodes.unplanned() == epoch:
            break
        assert not last, nodes.tails()
        nodes.stop(1)
    assert "alpha" not in nodes.voters()


@each_oracle
def test_a_node_is_replaced_by_another(nodes: Growing) -> None:
    nodes.found(1, 2, 3)
    with Load(nodes) as load:
        lost = next(node for node in (2, 3) if node != nodes.leader())
        nodes.kill(lost)
        nodes.join(4)
        after = nodes.changed("replace", lost, 4)
    assert "node4" in after["voters"]
    assert len(after["voters"]) == 3
    load.all_there()
    # The lost node's folder is back, and nobody hears it.
    nodes.start(lost, wait=False)
    assert nodes.on_leader("GET", "/v1/cluster").json["version"] == after["version"]
    assert len(nodes.voters()) == 3


def test_a_member_is_known_as_soon_as_it_was_added(nodes: Growing) -> None:
    """By its name, in the answer and in the next call."""
    nodes.found(1)
    for _ in range(30):
        assert nodes.changed("add", 4, **nodes.contact(4))["learners"] == ["node4"]
        assert nodes.changed("remove", 4)["learners"] == []


@pytest.mark.parametrize("away", [1, 4])
def test_a_node_that_was_away_hears_that_it_was_removed(nodes: Growing, away: int) -> None:
    """At each start, also when nobody dials it any more, and after the others have restarted."""
    nodes.found(1, 2, 3)
    nodes.join(4)
    nodes.changed("promote", 4)
    nodes.stop(away)
    nodes.changed("remove", away)
    told = "this node was removed from the cluster"
    for others in ((), tuple(node for node in (1, 2, 3, 4) if node != away)):
        for node in others:
            nodes.stop(node)
            nodes.start(node)
        log = nodes.log_path(away)
        before = len(log.read_text())
        nodes.start(away, wait=False)
        nodes.until(lambda: told in log.read_text()[before:])  # noqa: B023
        nodes.until(lambda: nodes.status(away).get("role") == "removed")
        nodes.stop(away)
    assert len(nodes.voters()) == 3


def test_a_node_that_lags_follows_one_that_was_removed_and_let_in_again(nodes: Growing) -> None:
    """On its way through the log it passes a configuration that lacks a member of today."""
    nodes.found(1, 2, 3)
    nodes.join(4)
    nodes.changed("promote", 4)
    # A unit may still say that the cluster is new, though none is founded with four nodes.
    nodes.stop(4)
    nodes.file_for(4, (1, 2, 3))
    nodes.start(4, new_cluster=True)
    lagging, again = 2, 3
    nodes.until(lambda: _handed_over(nodes, 4))
    nodes.caught_up()
    nodes.stop(lagging)
    nodes.changed("remove", again)
    nodes.kill(again)
    shutil.rmtree(nodes.data_dir(again))
    nodes.join(again)
    nodes.changed("promote", again)
    nodes.until(lambda: _handed_over(nodes, again))
    nodes.start(lagging, wait=False)
    # What it remembers of the leader's folder is from before the removal, so they do not talk.
    again_log = nodes.log_path(again)
    nodes.until(lambda: "has to catch up from another leader first" in again_log.read_text())
    nodes.until(lambda: _handed_over(nodes, 4))
    nodes.until(lambda: nodes.status(lagging).get("version") == nodes.status(4).get("version"))
    nodes.caught_up()
    nodes.until(lambda: all(each["connected"] for each in nodes.status(lagging)["members"]))
    assert "this node was removed" not in again_log.read_text().split('"serving"')[-1]
    assert '"exception"' not in nodes.log_path(lagging).read_text()


def _handed_over(nodes: Growing, node: int) -> bool:
    nodes.call(nodes.leader(), "POST", "/v1/cluster/handover", {"to": node})
    return nodes.leader() == node


def test_a_node_moves_to_another_address(nodes: Growing) -> None:
    nodes.found(1, 2, 3)
    moved = next(node for node in (1, 2) if node != nodes.leader())
    nodes.stop(moved)
    nodes.http[moved], nodes.peers[moved] = free_ports(2)
    contact = nodes.contact(moved)
    nodes.changed("move", moved, peer=contact["peer"], http=contact["http"])
    nodes.file_for(moved, (1, 2, 3))
    nodes.start(moved)
    nodes.caught_up()
    assert len(nodes.voters()) == 3
    # The other nodes know where it is, also after a start with their old files.
    other = next(node for node in (1, 2, 3) if node not in (moved, nodes.leader()))
    nodes.stop(other)
    nodes.start(other)
    nodes.caught_up()
    told = {each["name"]: each["http"] for each in nodes.status(other)["members"]}
    assert told[contact["name"]] == nodes.url(moved)


def test_what_would_end_badly_is_refused(nodes: Growing) -> None:
    """Before anything is changed, in one line that says what to do."""
    nodes.found(1, 2, 3)
    nothing_bad_is_done(nodes=nodes)
    # With one voter away, removing the other one would leave a majority that is not there.
    second = nodes.followers()[1]
    version = nodes.on_leader("GET", "/v1/cluster").json["version"]
    nodes.kill(second)
    for each in tries(nodes):
        with each:
            (first,) = nodes.followers()
            answer = nodes.change("remove", first)
            assert (answer.status, "missing" in answer.json["detail"]) == (409, True), answer
            break
    assert nodes.on_leader("GET", "/v1/cluster").json["version"] == version


@steady
def nothing_bad_is_done(nodes: Growing) -> None:
    leader = nodes.leader()
    first, second = (node for node in (1, 2, 3) if node != leader)
    version = nodes.status(leader)["version"]
    cases = [
        (("remove", leader), {}, 409, "hand over first"),
        (("promote", first), {}, 409, "is a voter already"),
        (("add", first), nodes.contact(4), 409, "is a member already"),
        (("add", 4), nodes.contact(first), 400, "both"),
        (("add", 4), {"http": "h:1"}, 400, "peer is missing"),
        (("move", first), {}, 400, "its new addresses"),
        (("promote", 9), {}, 400, "there is no member '9'"),
        (("replace", first), {}, 400, "two nodes"),
        (("remove", first, second), {}, 409, "1 of 3 voters would stay"),
        (("remove", first, second), {"force": False}, 409, "survives no failure"),
    ]
    for (action, *who), contact, status, text in cases:
        answer = nodes.change(action, *who, **contact)
        assert (answer.status, text in answer.json["detail"]) == (status, True), answer
    answer = nodes.call(first, "POST", "/v1/cluster/members", {"action": "remove", "nodes": ["2"]})
    assert answer.status == 409
    assert nodes.url(leader) in answer.json["detail"]
    assert len(nodes.voters()) == 3
    assert nodes.status(leader)["version"] == version
