"""Each check of the doctor: a sound cluster passes, and each fault is found by the check for it.

Method: the answers of three sound nodes, changed in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delaylog.broker.cli.doctor.cluster import (
    CHECKS,
    REPLACED_WARN,
    Asked,
    examine,
)
from delaylog.broker.cli.doctor.findings import LAG_BYTES_WARN, Mark

NAMES = {1: "alpha", 2: "beta", 3: "gamma"}
Answers = dict[int, Asked]


def url(node: int) -> str:
    return f"http://10.0.0.{node}:8711"


def row(node: int, seer: int) -> dict[str, Any]:
    return {
        "node": node,
        "name": NAMES[node],
        "http": url(node),
        "peer": f"10.0.0.{node}:8712",
        "connected": True,
        "voter": True,
        "lag_bytes": 0,
        "clock_ahead_ms": 0,
        "clock_off": False,
        "announced_http": None if node == seer else url(node),
        "announced_peer": None if node == seer else f"10.0.0.{node}:8712",
        "election": f"10.0.0.{node}:8712",
        "datagrams_arrive": None if node == seer else True,
    }


def sound(node: int) -> Asked:
    status = {
        "cluster": "demo",
        "node": node,
        "name": NAMES[node],
        "role": "leader" if node == 1 else "follower",
        "leader": {"node": 1},
        "log_end": 5_000,
        "majority": True,
        "missing_voters": [],
        "copy_to": None,
        "release": "0.2.0",
        "version": 4,
        "cluster_id": "aa",
        "feature_level": 2,
        "peer_tls": False,
        "connections_refused": {},
        "clock_offset_ms": 0,
        "clock_stands_aside": False,
        "members": [row(each, node) for each in NAMES],
    }
    ready = {"disk_full": False, "clock_held_ms": 0}
    return Asked(node, NAMES[node], url(node), status, ready=ready)


@pytest.fixture
def answers() -> Answers:
    return {node: sound(node) for node in NAMES}


def wrong(answers: Answers) -> list[tuple[str, Mark, str]]:
    found = examine(list(answers.values()))
    assert {each.check for each in found} == {name for name, _, _ in CHECKS}
    for each in found:
        assert bool(each.advice) is (each.mark is not Mark.OK)
    return [(each.check, each.mark, each.text) for each in found if each.mark is not Mark.OK]


def status(answers: Answers, node: int) -> dict[str, Any]:
    found = answers[node].status
    assert found is not None
    return found


def member(answers: Answers, seer: int, node: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = status(answers, seer)["members"]
    return rows[node - 1]


def test_a_sound_cluster(answers: Answers) -> None:
    assert wrong(answers) == []


def test_members_of_an_older_release_are_told_apart_only(answers: Answers) -> None:
    known = ("cluster", "cluster_id", "version", "node", "name", "role", "leader", "log_end")
    old = {name: value for name, value in status(answers, 2).items() if name in known}
    plain = ("node", "name", "http", "peer", "lag_bytes")
    old["members"] = [
        {key: value for key, value in each.items() if key in plain}
        for each in status(answers, 2)["members"]
    ]
    answers[2] = replace(answers[2], status=old)
    found = wrong(answers)
    assert {check for check, _, _ in found} == {"releases"}
    assert "node 2 (beta) does not say" in found[0][2]


def test_nobody_answers(answers: Answers) -> None:
    gone = {
        node: Asked(node, NAMES[node], url(node), error="Connection refused") for node in answers
    }
    found = wrong(gone)
    assert [check for check, _, _ in found] == ["members"] * 3 + ["leader"]


def away(answers: Answers) -> None:
    answers[3] = Asked(3, "gamma", url(3), error="Connection refused")


def another_node(answers: Answers) -> None:
    status(answers, 3)["node"] = 2


def another_cluster(answers: Answers) -> None:
    status(answers, 3)["cluster"] = "other"


def unready(answers: Answers) -> None:
    answers[2] = replace(answers[2], unready="this node waits", ready={})


def no_leader(answers: Answers) -> None:
    for node in NAMES:
        status(answers, node)["leader"] = None


def one_without_a_leader(answers: Answers) -> None:
    status(answers, 3)["leader"] = None


def two_leaders(answers: Answers) -> None:
    status(answers, 3)["leader"] = {"node": 3}


def another_address(answers: Answers) -> None:
    member(answers, 2, 3)["peer"] = "10.0.0.33:8712"
    member(answers, 2, 3)["announced_peer"] = None


def another_list(answers: Answers) -> None:
    status(answers, 2)["members"].append(row(3, 2) | {"node": 4, "announced_http": None})
    status(answers, 2)["members"][3]["announced_peer"] = None


def another_configuration(answers: Answers) -> None:
    status(answers, 2)["version"] = 3


def another_id(answers: Answers) -> None:
    status(answers, 2)["cluster_id"] = "bb"


def missing(answers: Answers) -> None:
    status(answers, 1)["missing_voters"] = ["gamma"]


def no_majority(answers: Answers) -> None:
    status(answers, 1).update(missing_voters=["beta", "gamma"], majority=False)


def joining(answers: Answers) -> None:
    status(answers, 3)["role"] = "joining"


def gate_shut(answers: Answers) -> None:
    status(answers, 1)["gate_age_ms"] = 3_500


def no_acknowledgement(answers: Answers) -> None:
    status(answers, 1)["majority"] = False


def blank_learner(answers: Answers) -> None:
    status(answers, 3).update(role="learner", log_end=0)


def learner(answers: Answers) -> None:
    status(answers, 3)["role"] = "learner"


def lags(answers: Answers) -> None:
    member(answers, 1, 3)["lag_bytes"] = LAG_BYTES_WARN + 1


def unheard(answers: Answers) -> None:
    member(answers, 1, 3)["lag_bytes"] = None
    member(answers, 2, 3)["lag_bytes"] = None


def copies(answers: Answers) -> None:
    status(answers, 1)["copy_to"] = 3


def clock(answers: Answers) -> None:
    for seer in (1, 2):
        member(answers, seer, 3).update(clock_off=True, clock_ahead_ms=-400)
    member(answers, 3, 3).update(clock_off=True, clock_ahead_ms=0)


def no_datagrams(answers: Answers) -> None:
    member(answers, 2, 1)["datagrams_arrive"] = False
    member(answers, 2, 3)["datagrams_arrive"] = False


def clock_of_two(answers: Answers) -> None:
    status(answers, 1)["clock_offset_ms"] = None
    member(answers, 1, 2).update(clock_off=True, clock_ahead_ms=400)


def clock_aside(answers: Answers) -> None:
    clock(answers)
    status(answers, 3).update(clock_offset_ms=3_000, clock_stands_aside=True)


def held(answers: Answers) -> None:
    answers[1].ready["clock_held_ms"] = 1_500


def not_released(answers: Answers) -> None:
    answers[1].ready["status"] = "held"


def full(answers: Answers) -> None:
    answers[2].ready["disk_full"] = True


def releases(answers: Answers) -> None:
    status(answers, 2)["release"] = "0.3.0"


def announced(answers: Answers) -> None:
    member(answers, 1, 2)["announced_http"] = "http://10.0.0.2:9"


def tls(answers: Answers) -> None:
    status(answers, 1).update(peer_tls=True, connections_refused={"tls": 7})


def tls_refused(answers: Answers) -> None:
    status(answers, 1)["connections_refused"] = {"tls": 7}


def certificate_fault(severity: str) -> Callable[[Answers], None]:
    def change(answers: Answers) -> None:
        fault = {"severity": severity, "text": "tls.cert: CN=beta expires", "advice": "renew it"}
        status(answers, 2)["certificate_faults"] = [fault]

    return change


def strangers(answers: Answers) -> None:
    status(answers, 1)["connections_refused"] = {"wrong_key": 7, "cut": 99}


def replaced(answers: Answers) -> None:
    status(answers, 1)["connections_refused"] = {"replaced": REPLACED_WARN + 1}


F, W = Mark.FAIL, Mark.WARN


@pytest.mark.parametrize(
    ("fault", "check", "mark", "says"),
    [
        (away, "members", F, f"node 3 (gamma) does not answer at {url(3)}: Connection refused"),
        (another_node, "members", F, "is the `http` of node 3 (gamma), and node 2 answers"),
        (another_cluster, "members", F, "different clusters: demo, other"),
        (unready, "ready", F, "node 2 (beta) is not ready: this node waits"),
        (not_released, "ready", W, "is held: it delivers, pushes and fires nothing"),
        (no_leader, "leader", F, "no leader, though all members answer"),
        (one_without_a_leader, "leader", F, "node 3 (gamma) knows no leader"),
        (two_leaders, "leader", F, "node 3 (gamma) says node 3"),
        (another_address, "configuration", F, "`peer` of node 3 is 10.0.0.3:8712"),
        (another_list, "configuration", F, "node 2 (beta) has a member 4"),
        (another_configuration, "configuration", W, "node 1 (alpha) has 4, node 2 (beta) has 3"),
        (another_id, "members", F, "data of 2 different clusters"),
        (missing, "voters", W, "node 1 (alpha) has no connection to the voters gamma"),
        (no_majority, "voters", F, "no majority of the voters; missing: beta, gamma"),
        (
            gate_shut,
            "leader",
            F,
            "node 1 (alpha) leads, but no majority has acknowledged its rounds",
        ),
        (no_acknowledgement, "leader", F, "node 1 (alpha) leads, but no majority has acknowledged"),
        (joining, "learners", F, "node 3 (gamma) has not joined"),
        (blank_learner, "learners", F, "holds no data"),
        (learner, "learners", W, "does not vote"),
        (
            no_datagrams,
            "datagrams",
            W,
            "to UDP 10.0.0.2:8712 of node 2 (beta) from node 1 (alpha), node 3 (gamma)",
        ),
        (lags, "lag", W, "lacks 67,108,865 bytes"),
        (unheard, "lag", W, "has not heard how far node 3 (gamma) is"),
        (copies, "lag", W, "sends a copy of its data to node 3"),
        (clock, "clocks", W, "node 3 (gamma) is 400 ms behind that of node 1 (alpha)"),
        (clock_of_two, "clocks", W, "with two nodes nobody can tell"),
        (clock_aside, "clocks", F, "off by 3,000 ms ahead: it does not stand for election"),
        (held, "clocks", W, "stands still for 1,500 ms"),
        (full, "disk", F, "node 2 (beta) has too little disk space"),
        (releases, "releases", W, "node 2 (beta) 0.3.0"),
        (announced, "addresses", F, "`http` is http://10.0.0.2:9, and the cluster has"),
        (tls, "tls", F, "on at node 1 (alpha) and off at node 2 (beta), node 3 (gamma)"),
        (tls_refused, "tls", W, "node 1 (alpha) has refused 7 connections"),
        (certificate_fault("error"), "certificates", F, "node 2 (beta): tls.cert: CN=beta expires"),
        (certificate_fault("warning"), "certificates", W, "node 2 (beta): tls.cert: CN=beta expi"),
        (strangers, "connections", W, "since its start: wrong_key 7"),
        (replaced, "connections", W, "were replaced 11 times"),
    ],
)
def test_each_fault_is_found(
    answers: Answers, fault: Callable[[Answers], None], check: str, mark: Mark, says: str
) -> None:
    fault(answers)
    found = wrong(answers)
    assert len({each[:2] for each in found}) == 1, found
    assert found[0][:2] == (check, mark)
    assert says in found[0][2]


def test_a_clock_is_accused_once(answers: Answers) -> None:
    clock_aside(answers)
    assert len(wrong(answers)) == 1


def test_who_does_not_answer_is_why_there_is_no_leader(answers: Answers) -> None:
    """Each member that answers tells its own view."""
    for node in (2, 3):
        answers[node] = Asked(node, NAMES[node], url(node), error="Connection refused")
        member(answers, 1, node).update(connected=False)
    member(answers, 1, 3)["silent_ms"] = 12_300
    member(answers, 1, 1)["unfit"] = "slow"
    alone = {"role": "candidate", "leader": None, "not_ready": "this node knows no leader"}
    status(answers, 1).update(alone, epoch={"counter": 7, "node": 3})
    found = [text for check, _, text in wrong(answers) if check == "leader"]
    assert found == [
        "no leader: node 2 (beta) and node 3 (gamma) do not answer",
        "node 1 (alpha) has the role candidate and is connected to no other member; its newest "
        "epoch is 7 of node 3; it is unfit to lead (slow); it last heard node 3 (gamma) 12.3 s "
        "ago; this node knows no leader",
    ]


def test_a_new_cluster_that_nobody_stated_to_be_new(answers: Answers) -> None:
    for node, role in zip(NAMES, ("joining", "learner", "learner"), strict=True):
        status(answers, node).update(role=role, log_end=0)
        status(answers, node).update(leader=None)
    every = examine(list(answers.values()))
    # To run the doctor again does not help them.
    assert [each.advice for each in every if each.check == "leader"] == ["see the check `learners`"]
    found = [each for each in every if each.check == "learners"]
    assert [each.text for each in found] == [
        "no member that answers has data, and node 2 (beta) and node 3 (gamma) started without "
        "--new-cluster"
    ]
    assert "empty their data folders" in found[0].advice
