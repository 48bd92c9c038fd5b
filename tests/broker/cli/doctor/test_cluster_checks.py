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
Change = Callable[[Answers], None]


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


def says(node: int, /, **members: Any) -> Change:
    """A node says this of itself."""
    return lambda answers: status(answers, node).update(members)


def sees(seer: int, node: int, /, **members: Any) -> Change:
    """A node says this of a member."""
    return lambda answers: member(answers, seer, node).update(members)


def is_ready(node: int, /, **members: Any) -> Change:
    """The readiness of a node has this."""
    return lambda answers: answers[node].ready.update(members)


def several(*changes: Change) -> Change:
    def change(answers: Answers) -> None:
        for each in changes:
            each(answers)

    return change


def away(answers: Answers) -> None:
    answers[3] = Asked(3, "gamma", url(3), error="Connection refused")


def unready(answers: Answers) -> None:
    answers[2] = replace(answers[2], unready="this node waits", ready={})


def another_list(answers: Answers) -> None:
    status(answers, 2)["members"].append(row(3, 2) | {"node": 4, "announced_http": None})
    status(answers, 2)["members"][3]["announced_peer"] = None


def certificate_fault(severity: str) -> Change:
    fault = {"severity": severity, "text": "tls.cert: CN=beta expires", "advice": "renew it"}
    return says(2, certificate_faults=[fault])


CLOCK = several(
    *(sees(seer, 3, clock_off=True, clock_ahead_ms=-400) for seer in (1, 2)),
    sees(3, 3, clock_off=True, clock_ahead_ms=0),
)
ASIDE = several(CLOCK, says(3, clock_offset_ms=3_000, clock_stands_aside=True))
OF_TWO = several(says(1, clock_offset_ms=None), sees(1, 2, clock_off=True, clock_ahead_ms=400))
NO_DATAGRAMS = several(*(sees(2, node, datagrams_arrive=False) for node in (1, 3)))
F, W = Mark.FAIL, Mark.WARN


@pytest.mark.parametrize(
    ("fault", "check", "mark", "text"),
    [
        (away, "members", F, f"node 3 (gamma) does not answer at {url(3)}: Connection refused"),
        (says(3, node=2), "members", F, "is the `http` of node 3 (gamma), and node 2 answers"),
        (says(3, cluster="other"), "members", F, "different clusters: demo, other"),
        (unready, "ready", F, "node 2 (beta) is not ready: this node waits"),
        (is_ready(1, status="held"), "ready", W, "is held: it delivers, pushes and fires nothing"),
        (
            several(*(says(node, leader=None) for node in NAMES)),
            *("leader", F, "no leader, though all members answer"),
        ),
        (says(3, leader=None), "leader", F, "node 3 (gamma) knows no leader"),
        (says(3, leader={"node": 3}), "leader", F, "node 3 (gamma) says node 3"),
        (
            sees(2, 3, peer="10.0.0.33:8712", announced_peer=None),
            *("configuration", F, "`peer` of node 3 is 10.0.0.3:8712"),
        ),
        (another_list, "configuration", F, "node 2 (beta) has a member 4"),
        (says(2, version=3), "configuration", W, "node 1 (alpha) has 4, node 2 (beta) has 3"),
        (says(2, cluster_id="bb"), "members", F, "data of 2 different clusters"),
        (
            says(1, missing_voters=["gamma"]),
            *("voters", W, "node 1 (alpha) has no connection to the voters gamma"),
        ),
        (
            says(1, missing_voters=["beta", "gamma"], majority=False),
            *("voters", F, "no majority of the voters; missing: beta, gamma"),
        ),
        (
            says(1, gate_age_ms=3_500),
            *("leader", F, "node 1 (alpha) leads, but no majority has acknowledged its rounds"),
        ),
        (
            says(1, majority=False),
            *("leader", F, "node 1 (alpha) leads, but no majority has acknowledged"),
        ),
        (says(3, role="joining"), "learners", F, "node 3 (gamma) has not joined"),
        (says(3, role="learner", log_end=0), "learners", F, "holds no data"),
        (says(3, role="learner"), "learners", W, "does not vote"),
        (
            NO_DATAGRAMS,
            "datagrams",
            W,
            "to UDP 10.0.0.2:8712 of node 2 (beta) from node 1 (alpha), node 3 (gamma)",
        ),
        (sees(1, 3, lag_bytes=LAG_BYTES_WARN + 1), "lag", W, "lacks 67,108,865 bytes"),
        (
            several(*(sees(seer, 3, lag_bytes=None) for seer in (1, 2))),
            *("lag", W, "has not heard how far node 3 (gamma) is"),
        ),
        (says(1, copy_to=3), "lag", W, "sends a copy of its data to node 3"),
        (CLOCK, "clocks", W, "node 3 (gamma) is 400 ms behind that of node 1 (alpha)"),
        (OF_TWO, "clocks", W, "with two nodes nobody can tell"),
        (ASIDE, "clocks", F, "off by 3,000 ms ahead: it does not stand for election"),
        (is_ready(1, clock_held_ms=1_500), "clocks", W, "stands still for 1,500 ms"),
        (is_ready(2, disk_full=True), "disk", F, "node 2 (beta) has too little disk space"),
        (says(2, release="0.3.0"), "releases", W, "node 2 (beta) 0.3.0"),
        (
            sees(1, 2, announced_http="http://10.0.0.2:9"),
            *("addresses", F, "`http` is http://10.0.0.2:9, and the cluster has"),
        ),
        (
            says(1, peer_tls=True, connections_refused={"tls": 7}),
            *("tls", F, "on at node 1 (alpha) and off at node 2 (beta), node 3 (gamma)"),
        ),
        (
            says(1, connections_refused={"tls": 7}),
            *("tls", W, "node 1 (alpha) has refused 7 connections"),
        ),
        (certificate_fault("error"), "certificates", F, "node 2 (beta): tls.cert: CN=beta expires"),
        (certificate_fault("warning"), "certificates", W, "node 2 (beta): tls.cert: CN=beta expi"),
        (
            says(1, connections_refused={"wrong_key": 7, "cut": 99}),
            *("connections", W, "since its start: wrong_key 7"),
        ),
        (
            says(1, connections_refused={"replaced": REPLACED_WARN + 1}),
            *("connections", W, "were replaced 11 times"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_each_fault_is_found(
    answers: Answers, fault: Change, check: str, mark: Mark, text: str
) -> None:
    fault(answers)
    found = wrong(answers)
    assert len({each[:2] for each in found}) == 1, found
    assert found[0][:2] == (check, mark)
    assert text in found[0][2]


def test_a_clock_is_accused_once(answers: Answers) -> None:
    ASIDE(answers)
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
