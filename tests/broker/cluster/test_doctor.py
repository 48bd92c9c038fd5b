"""`delaylog cluster doctor` against three real nodes: sound, one killed, two, one elsewhere."""

from __future__ import annotations

import json
import shutil
from typing import Any

from delaylog.broker.cli.doctor.cluster import CHECKS
from delaylog.client.child_broker import free_ports
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes, steady
from tests.starts.warm import as_text, run_warm
from tests.waiting import await_that


def doctor(three: ThreeNodes, node: int, *words: str) -> Any:
    return as_text(run_warm("cluster", "doctor", *words, "--url", three.url(node)))


def failed(three: ThreeNodes, node: int) -> dict[str, str]:
    """By check, what a doctor that asks this node finds wrong; it has to say so by its status."""
    done = doctor(three, node, "--json")
    found = json.loads(done.stdout)
    wrong = {each["check"]: each["text"] for each in found["checks"] if each["mark"] == "fail"}
    assert (done.returncode, found["healthy"]) == (int(bool(wrong)), not wrong), done.stderr
    return wrong


def test_a_sound_cluster(three: ThreeNodes) -> None:
    """From every node, once all have measured each other's clocks and the members are in the log,
    for which the leader begins an epoch anew.
    """
    for node in NODES:
        three.until(lambda node=node: three.status(node).get("version"))
        three.until(lambda node=node: three.status(node).get("clock_offset_ms") is not None)
    three.caught_up()
    three.followers()
    said: list[str] = []

    def sound(node: int) -> bool:
        done = doctor(three, node)
        said[:] = done.stdout.splitlines()
        good = [line for line in said if line.startswith("OK ")]
        return done.returncode == 0 and len(good) == len(said) == len(CHECKS)

    # On a machine that stalls a node misses another one for a moment.
    for node in NODES:
        await_that(lambda node=node: sound(node), lambda: said, seconds=three.wait_s)


@steady
def test_what_a_node_announces_and_measures(three: ThreeNodes) -> None:
    for node in NODES:
        three.until(lambda node=node: three.status(node).get("missing_voters") == [])
        status = three.status(node)
        assert status["majority"]
        assert not status["clock_stands_aside"]
        assert abs(status["clock_offset_ms"]) < 250
        for each in status["members"]:
            assert each["clock_off"] is False
            assert abs(each["clock_ahead_ms"]) < 250
            if each["node"] != node:
                assert each["announced_http"] == each["http"]
                assert each["announced_peer"] == each["peer"]
                assert each["release"] == status["release"]


def test_one_is_killed(three: ThreeNodes) -> None:
    left = three.followers()
    (gone,) = {*NODES} - {*left}
    three.kill(gone)
    three.followers()
    wrong: dict[str, str] = {}

    def only_members() -> bool:
        wrong.clear()
        wrong.update(failed(three, left[0]))
        assert "members" in wrong
        return len(wrong) == 1

    # A new leader is sound a moment after it is seen.
    await_that(only_members, lambda: wrong, seconds=three.wait_s)
    assert f"node {gone} ({NAMES[gone]}) does not answer" in wrong["members"]
    assert wrong["members"].endswith("Connection refused")


def test_a_survivor_names_whom_it_lacks(three: ThreeNodes) -> None:
    """In the log, once, and to the doctor."""
    down = [node for node in NODES if node not in three.running]
    left, gone = three.running
    three.kill(gone)
    names = sorted(NAMES[node] for node in [*down, gone])
    said = f"missing: {', '.join(names)}"
    found = three.until(
        lambda: [one for one in three.log_lines(left) if said in one.get("message", "")]
    )
    assert len(found) == 1
    assert found[0]["level"].lower() == "error"
    wrong = failed(three, left)
    assert {"members", "ready", "leader", "voters"} <= wrong.keys()
    assert wrong["voters"].endswith(said)
    ready = three.call(left, "GET", "/readyz")
    assert ready.status == 503
    assert all(name in ready.json["detail"] for name in names)
    three.start(*down, gone)
    three.followers()


def test_a_learner_that_holds_nothing(three: ThreeNodes) -> None:
    """It lost its disk, and there is no leader to give it anything."""
    blank, other, last = NODES
    three.leader()
    assert set(three.stop()) == {0}
    shutil.rmtree(three.data_dir(blank))
    three.start(blank, other)
    three.until(lambda: three.status(blank).get("role") == "learner")
    ready = three.call(blank, "GET", "/readyz")
    assert (ready.status, ready.json["detail"]) == (
        503,
        "this node is a learner and has no data yet",
    )
    wrong = failed(three, other)
    assert wrong["learners"] == "node 1 (alpha) is a learner and holds no data"
    three.start(last)
    three.leader()
    three.caught_up()
    three.until(lambda: three.call(blank, "GET", "/readyz").status == 200)


def test_a_node_at_another_port(three: ThreeNodes) -> None:
    """It says at its start that clients will be sent elsewhere."""
    leader, (node, _) = three.leader(), three.followers()
    assert three.stop(node) == [0]
    right = three.http[node]
    (three.http[node],) = free_ports(1)
    three.start(node)
    text = f"--http listens on port {three.http[node]}"
    assert [one for one in three.log_lines(node) if text in one.get("message", "")]
    wrong = failed(three, leader)
    assert f"does not answer at http://127.0.0.1:{right}" in wrong["members"]
    assert three.stop(node) == [0]
    three.http[node] = right
    three.start(node)
    three.followers()
