"""Leaders whose disk is full, slow or fails, and targets that are of no use: real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.three_nodes import NAMES, NODES, TRIES, ThreeNodes, tries
from tests.broker.cluster.troubled import (
    LATER,
    LIMITS,
    TOPIC,
    Load,
    Troubled,
    assert_kept,
    moves,
    start,
)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    with start(tmp_path_factory.mktemp("troubled")) as made:
        yield made


def test_a_leader_whose_disk_is_full_hands_over(troubled: Troubled) -> None:
    """To the last byte, under load; it is no target until it has space again."""
    nodes = troubled.nodes
    for _ in range(3):
        old = nodes.leader()
        with Load(nodes) as load:
            nodes.until(lambda: len(load.sent) > 20)
            began = time.monotonic()
            troubled.begin(old, "full")
            nodes.until(lambda old=old: nodes.leader() != old)
            before = len(load.sent)
            nodes.until(lambda load=load, before=before: len(load.sent) > before + 20)
            took_s = time.monotonic() - began
        done = moves(nodes, old)
        if any(done.values()):
            break
        # On a machine that stalls it may have lost the lead before it could give it away.
        troubled.end(old, "full")
        nodes.until(lambda old=old: troubled.sees(nodes.leader(), old) is None)
    assert load.longest_s < 8, nodes.tails()
    assert took_s < 15, nodes.tails()
    assert_kept(nodes, load.sent)
    lines = [each["message"] for each in nodes.log_lines(old) if "message" in each]
    assert any("its disk is full" in line for line in lines), lines
    for each in tries(nodes):
        with each:
            leader = nodes.leader()
            assert leader != old
            nodes.until(lambda leader=leader: troubled.sees(leader, old) == "full")
            answer = nodes.call(leader, "POST", "/v1/cluster/handover", {"to": old})
            assert answer.status == 409, answer
            assert f"{NAMES[old]} has a full disk" in answer.json["detail"]
            assert nodes.leader() == leader
            break
    assert sum(v for k, v in done.items() if 'reason="full"' in k and "failed" not in k) == 1
    troubled.end(old, "full")
    for each in tries(nodes):
        with each:
            nodes.hand_over(old)
            assert nodes.leader() == old
            break


def test_a_leader_whose_disk_is_slow_hands_over(troubled: Troubled) -> None:
    nodes = troubled.nodes
    for _ in range(TRIES):
        old = nodes.leader()
        with Load(nodes) as load:
            nodes.until(lambda load=load: len(load.sent) > 20)
            troubled.begin(old, "slow")
            nodes.until(lambda old=old: nodes.leader() != old)
            before = len(load.sent)
            nodes.until(lambda load=load, before=before: len(load.sent) > before + 20)
        troubled.end(old, "slow")
        assert_kept(nodes, load.sent)
        done = moves(nodes, old)
        moved = sum(v for k, v in done.items() if 'reason="slow"' in k and "failed" not in k)
        if moved:
            break
        # On a machine that stalls it may have lost the lead before it could give it away.
        nodes.until(lambda old=old: troubled.sees(nodes.leader(), old) is None)
    assert moved == 1


def leads_on_when_all_are_full(troubled: Troubled) -> int:
    """Fills every disk; returns the leader, which has said once that it leads on."""
    nodes = troubled.nodes
    leader, others = nodes.leader(), nodes.followers()

    def told() -> list[str]:
        lines = [each["message"] for each in nodes.log_lines(leader)]
        return [line for line in lines if "leads on: no node can take over" in line]

    before = len(told())
    for node in others:
        troubled.begin(node, "full")
    nodes.until(lambda: all(troubled.sees(leader, node) == "full" for node in others))
    troubled.begin(leader, "full")
    nodes.until(lambda: len(told()) > before)
    answer = nodes.call(leader, "POST", "/v1/cluster/handover", {})
    assert answer.status == 409, answer
    assert answer.json["detail"].count("has a full disk") == 2
    assert nodes.call(leader, "POST", f"{TOPIC}/messages", LATER).status == 507
    assert (nodes.leader(), len(told())) == (leader, before + 1)
    return leader


def test_while_every_disk_is_full_the_leader_leads_on(troubled: Troubled) -> None:
    """It says so once; when it is killed another one is elected all the same."""
    nodes = troubled.nodes
    for each in tries(nodes):
        with each:
            leader = leads_on_when_all_are_full(troubled)
            break
        troubled.heal()
        nodes.until(troubled.is_quiet)
    nodes.kill(leader)
    nodes.leader()
    for node in NODES:
        troubled.end(node, "full")
    nodes.start(leader)
    nodes.until(troubled.is_quiet)
    nodes.followers()


def test_a_target_that_is_stopped_is_refused(troubled: Troubled) -> None:
    """It is named with the reason, and the leader leads on without a pause."""
    for each in tries(troubled.nodes):
        with each:
            refuses_a_stopped_target(troubled.nodes)
            break
    troubled.nodes.followers()


def refuses_a_stopped_target(nodes: ThreeNodes) -> None:
    leader, (target, _) = nodes.leader(), nodes.followers()
    nodes.signal(target, signal.SIGSTOP)
    try:
        nodes.until(
            lambda: (
                not next(
                    each["connected"]
                    for each in nodes.status(leader)["members"]
                    if each["node"] == target
                )
            )
        )
        answer = nodes.call(leader, "POST", "/v1/cluster/handover", {"to": NAMES[target]})
        assert (answer.status, answer.json["detail"]) == (409, f"{NAMES[target]} is not connected")
        answer = nodes.call(leader, "POST", f"{TOPIC}/messages", LATER)
        assert answer.status == 200, answer
    finally:
        nodes.signal(target, signal.SIGCONT)


def test_a_leader_whose_disk_fails_is_replaced(troubled: Troubled) -> None:
    """Its process ends with the first failed sync, and another node answers soon."""
    nodes = troubled.nodes
    took_s: list[float] = []
    for _ in range(TRIES):
        old = nodes.leader()
        with Load(nodes) as load:
            nodes.until(lambda load=load: len(load.sent) > 20)
            load.longest_s = 0.0
            troubled.begin(old, "broken")
            assert nodes.ended(old) == 1
            before = len(load.sent)
            nodes.until(lambda load=load, before=before: len(load.sent) > before + 20)
        assert_kept(nodes, load.sent)
        took_s.append(load.longest_s)
        if load.longest_s < 2:
            return
        # Once it may have been the machine.
        troubled.end(old, "broken")
        nodes.start(old)
        nodes.until(troubled.is_quiet)
        nodes.followers()
    raise AssertionError(f"{took_s} seconds\n{nodes.tails()}")


def test_a_leader_that_cannot_write_lets_the_leadership_go(tmp_path: Path) -> None:
    """Without a reserve its log has no room for the frames that a hand-over would wait for."""
    limits = LIMITS.replace("reserve_file_bytes = 4194304", "reserve_file_bytes = 0")
    with start(tmp_path, limits=limits) as troubled:
        nodes = troubled.nodes
        old = nodes.leader()
        with Load(nodes) as load:
            nodes.until(lambda: len(load.sent) > 20)
            troubled.begin(old, "full")
            nodes.until(lambda: nodes.leader() != old)
            before = len(load.sent)
            nodes.until(lambda: len(load.sent) > before + 20)
        assert load.longest_s < 8, nodes.tails()
        assert_kept(nodes, load.sent)
        done = moves(nodes, old)
        assert sum(v for k, v in done.items() if 'reason="full"' in k and "failed" not in k) == 1
        troubled.end(old, "full")
        nodes.caught_up()


def test_priorities(start_three: Callable[..., ThreeNodes]) -> None:
    """The highest leads, gets the leadership back, and is followed by the next.

    An election only prefers it; on a machine that stalls, the leader corrects that later.
    """
    priorities = {1: 40, 2: 80, 3: 60}
    nodes = start_three(more={node: f"priority = {of}" for node, of in priorities.items()})
    for each in tries(nodes):
        with each:
            nodes.until(lambda: nodes.leader() == 2)
            leader, answer = nodes.hand_over()
            assert (leader, answer.json["node"]) == (2, 3)
            nodes.hand_over(1)
            began = time.monotonic()
            nodes.until(lambda: nodes.leader() == 2)
            nodes.handed_over += 1
            assert time.monotonic() - began > 8
            assert moves(nodes, 1)['reason="priority",result="handed_over"'] >= 1
            break
    nodes.followers()
    nodes.kill(2)
    nodes.until(lambda: nodes.leader() == 3)
