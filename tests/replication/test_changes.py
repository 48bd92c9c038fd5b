"""Changes of members: step by step under a leader, and what a crash in the middle leaves.

Method: real nodes whose messages are delivered by hand; nodes 3 and 4 are no members at first.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from delaylog.replication.campaign import Candidate
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import NO_TICK
from delaylog.replication.errors import ChangeRefusedError
from delaylog.replication.messages import Nack, Promise
from tests.replication.mutations import DIRECTED, mutated
from tests.replication.parts import Cluster

THREE = Configuration((0, 1, 2))


def led(node: int = 0) -> Cluster:
    cluster = Cluster(spares=2)
    cluster.lead(node)
    cluster.send(node, 3)
    return cluster


def change(cluster: Cluster, node: int, to: Configuration) -> None:
    """Ask for it and give it time."""
    cluster.nodes[node].leadership.change(to)
    cluster.pass_ms(300)


def known(cluster: Cluster, node: int) -> Configuration:
    return cluster.nodes[node].configuration


def with_learners(*nodes: int) -> Cluster:
    cluster = led()
    change(cluster, 0, known(cluster, 0).with_learners(nodes))
    return cluster


def test_a_blank_learner_may_vote_while_a_voter_is_away() -> None:
    """It takes the place of that voter. A voter that was wiped has to wait for all others."""
    cluster = with_learners(3)
    cluster.down = {2}
    cluster.wipe(3)
    cluster.pass_ms(300)
    leader = cluster.nodes[0].leader
    assert leader is not None
    assert not leader.progress[3].voter
    assert cluster.nodes[0].readmit(3)
    cluster.settle()
    cluster.pass_ms(100)
    change(cluster, 0, known(cluster, 0).with_voters((0, 1, 3)))
    assert known(cluster, 3) == Configuration((0, 1, 3), removed=(2,), version=3)
    cluster.down = {1, 2}
    cluster.send(0)
    assert cluster.nodes[0].commit == cluster.disks[0].log.end
    cluster.down = {2, 3}
    cluster.wipe(1)
    cluster.pass_ms(300)
    assert not cluster.nodes[0].readmit(1)


def replaced_behind_its_back() -> Cluster:
    """Leader 0 is cut off; node 1 leads, puts learner 3 in the place of voter 2, and commits with
    node 3 alone. Then the disk of node 3 is lost, and it finds node 0 only.
    """
    cluster = with_learners(3)
    cluster.down = {0}
    cluster.pass_ms(300)
    cluster.lead(1)
    cluster.pass_ms(100)
    change(cluster, 1, known(cluster, 1).with_voters((0, 1, 3)))
    cluster.down = {0, 2}
    cluster.send(1, 2)
    assert cluster.nodes[1].commit == cluster.disks[1].log.end
    cluster.down = {1, 2}
    cluster.wipe(3)
    cluster.nodes[0].reconnect(3)
    cluster.pass_ms(300)
    return cluster


@pytest.mark.parametrize("planted", [False, True])
def test_a_leader_whose_time_has_passed_lets_no_learner_in(planted: bool) -> None:
    """The node that it takes for a learner is a voter by now. Once its vote counts, nodes 0, 2 and
    3 go on without what was committed.
    """
    cluster = replaced_behind_its_back()
    committed = cluster.nodes[1].commit
    with mutated(DIRECTED["learner_at_once"]) if planted else nullcontext():
        assert cluster.nodes[0].readmit(3) is planted
    cluster.settle()
    cluster.down = {1}
    cluster.nodes[0].renew(cluster.now)
    cluster.pass_ms(1_000)
    leader = cluster.nodes[0].leader
    lost = leader is not None and leader.serving and leader.begin_end <= committed
    assert lost is planted
    if not planted:
        # With node 1, which holds what was committed, all goes on.
        cluster.down = {2}
        cluster.lead(1)
        cluster.pass_ms(300)
        assert cluster.nodes[1].readmit(3)


@pytest.mark.parametrize("planted", [False, True])
def test_a_voter_that_is_wiped_again_is_heard_of_anew(planted: bool) -> None:
    """Leader 0 let node 2 in and was cut off at once; node 2 has promised node 1 since then."""
    cluster = led()
    cluster.wipe(2)
    cluster.nodes[0].reconnect(2)
    cluster.pass_ms(300)
    assert cluster.nodes[0].readmit(2)
    cluster.turn()
    cluster.down = {0}
    cluster.lead(1)
    cluster.send(1, 2)
    cluster.down = {1}
    cluster.wipe(2)
    with mutated(DIRECTED["reconnect_unnoticed"]) if planted else nullcontext():
        cluster.nodes[0].reconnect(2)
    cluster.pass_ms(300)
    assert cluster.nodes[0].readmit(2) is planted


@pytest.mark.parametrize("planted", [False, True])
def test_a_wiped_voter_is_no_learner(planted: bool) -> None:
    """A majority agrees, but node 1, which is away, may hold an old candidacy with its promise."""
    cluster = led()
    cluster.down = {1}
    cluster.send(0)
    cluster.wipe(2)
    cluster.nodes[0].reconnect(2)
    cluster.pass_ms(300)
    assert not cluster.nodes[0].readmit(2)
    cluster = Cluster(5)
    cluster.lead(0)
    cluster.down = {1}
    cluster.wipe(2)
    cluster.nodes[0].reconnect(2)
    cluster.pass_ms(300)
    with mutated(DIRECTED["voter_as_learner"]) if planted else nullcontext():
        assert cluster.nodes[0].readmit(2) is planted


def test_from_one_to_three_and_back() -> None:
    cluster = Cluster(1, spares=2)
    cluster.lead(0)
    change(cluster, 0, known(cluster, 0).with_learners((1, 2)))
    change(cluster, 0, known(cluster, 0).with_voters((0, 1, 2)))
    cluster.down = {0}
    cluster.pass_ms(300)
    cluster.lead(1)
    change(cluster, 1, known(cluster, 1).with_voters((1,)))
    # The node that leaves is away and cannot agree; the others of its side do.
    assert known(cluster, 1) == Configuration((1,), removed=(0, 2), version=5)
    cluster.down = {0, 2}
    cluster.send(1)
    assert cluster.nodes[1].commit == cluster.disks[1].log.end


def test_a_change_that_is_not_possible_now_is_refused() -> None:
    cluster = led()
    leadership = cluster.nodes[0].leadership
    cases = (
        (THREE.with_voters((1, 2)), "hand over first"),
        (THREE.with_voters((0, 1, 2, 3)), "node 3 does not have the whole log"),
        (THREE.with_learners((3,)).with_learners((4,)), "in progress"),
    )
    for to, why in cases:
        with pytest.raises(ChangeRefusedError, match=why):
            leadership.change(to)
    with pytest.raises(ChangeRefusedError, match="does not lead"):
        cluster.nodes[1].leadership.change(THREE.with_learners((3,)))
    leadership.change(THREE.with_learners((3,)))
    with pytest.raises(ChangeRefusedError, match="another change is requested"):
        leadership.change(THREE.with_learners((4,)))


def test_promises_of_before_a_newer_configuration_are_asked_for_anew() -> None:
    """One of them may come from a node that was wiped and added again since it gave it."""
    own = Promise(9 << 16, 100, NO_TICK, ((1 << 16, 0),))
    candidate = Candidate(0, Configuration(tuple(range(5))), own, now_ms=0, ask_ms=20)
    for peer in (3, 4):
        candidate.promises[peer] = own
    assert candidate.enough()
    candidate.decide(0)
    newer = Configuration(tuple(range(5)), version=4)
    assert not candidate.adopted(newer, own)
    assert candidate.missing() == [1, 2, 3, 4]
    for peer in (1, 4):
        candidate.promises[peer] = own
    candidate.decide(0)
    assert candidate.adopted(newer, own)


def test_a_node_that_leaves_votes_and_may_not_lead() -> None:
    cluster = with_learners(3, 4)
    cluster.nodes[0].leadership.change(known(cluster, 0).with_voters((0, 2, 3, 4)))
    while not known(cluster, 1).changing:
        cluster.pass_ms(1)
    assert cluster.nodes[1].votes
    assert not cluster.nodes[1].may_lead
    assert cluster.nodes[3].may_lead


def test_a_node_without_a_vote_is_no_candidate() -> None:
    cluster = with_learners(3)
    for node in (3, 4):
        promised = cluster.nodes[node].promised
        cluster.nodes[node].suggest_leader(cluster.now, at_once=True)
        assert cluster.nodes[node].promised == promised


def test_the_next_leader_ends_a_change() -> None:
    """The leader fails as soon as the first step is committed."""
    cluster = with_learners(3, 4)
    cluster.nodes[0].leadership.change(known(cluster, 0).with_voters((0, 2, 3, 4)))
    while not known(cluster, 3).changing:
        cluster.pass_ms(1)
    cluster.down = {0}
    cluster.pass_ms(300)
    cluster.lead(3)
    cluster.pass_ms(300)
    assert known(cluster, 4) == Configuration((0, 2, 3, 4), removed=(1,), version=3)


@pytest.mark.parametrize("planted", [False, True])
def test_a_change_made_for_one_log_is_not_made_behind_another(planted: bool) -> None:
    """A leader that was cut off wants another member; meanwhile the others have changed theirs."""
    cluster = led()
    cluster.down = {0}
    cluster.pass_ms(300)
    cluster.lead(1)
    change(cluster, 1, THREE.with_learners((3,)))
    theirs = cluster.nodes[1].promised
    cluster.down = set()
    cluster.nodes[0].leadership.change(THREE.with_learners((4,)))
    # An answer from long ago tells it how high the others are.
    cluster.nodes[0].receive(1, Nack(0, theirs), cluster.now)
    with mutated(DIRECTED["change_anyway"]) if planted else nullcontext():
        cluster.nodes[0].renew(cluster.now)
        cluster.settle()
    assert cluster.nodes[0].leadership.serving
    assert known(cluster, 0).learners == ((4,) if planted else (3,))


@pytest.mark.parametrize("planted", [False, True])
def test_a_newer_configuration_that_is_found_has_to_agree_too(planted: bool) -> None:
    """The first step to voters 0, 2, 3 and 4 reached node 1 alone before its leader fell; then
    node 2, which does not know of it, asks node 1.
    """
    cluster = with_learners(3, 4)
    cluster.down = {2, 3, 4}
    change(cluster, 0, known(cluster, 0).with_voters((0, 2, 3, 4)))
    assert known(cluster, 1).changing
    assert not known(cluster, 2).changing
    cluster.down = {0, 3, 4}
    with mutated(DIRECTED["adopted_unasked"]) if planted else nullcontext():
        cluster.nodes[2].suggest_leader(cluster.now, at_once=True)
        cluster.pass_ms(200)
        begun = cluster.nodes[2].leader is not None
    assert known(cluster, 2).changing
    assert begun is planted
    if not planted:
        cluster.down = {0}
        cluster.pass_ms(200)
        assert cluster.nodes[2].leadership.serving
