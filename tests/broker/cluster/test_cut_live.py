"""Leaders whose TCP connections to their peers fail while the election's UDP passes.

Each node is a real process. A leader that cannot commit gives up the leadership, and a leader whose
followers are only slow keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delaylog.broker.cluster.watch.fitness import PRIORITY_AFTER_MS
from tests.broker.cluster.three_nodes import NODES
from tests.broker.cluster.troubled import Load, Troubled, moves, start

BODY = "x" * 2_000
UNSEEN_S_MAX = 2
"""No outage may last longer while every node says that it is ready."""
OUTAGE_S_MAX = 10
"""Three seconds on an idle machine; without a successor the outage lasts as long as the trouble."""


def drop_both_ways(troubled: Troubled, leader: int, others: list[int]) -> None:
    troubled.disconnect("drop", leader, others)


def drop_what_it_sends(troubled: Troubled, leader: int, others: list[int]) -> None:
    for other in others:
        troubled.begin(leader, f"drop-{other}")


def drop_what_it_hears(troubled: Troubled, leader: int, others: list[int]) -> None:
    for other in others:
        troubled.begin(other, f"drop-{leader}")


def reset(troubled: Troubled, leader: int, others: list[int]) -> None:
    troubled.disconnect("reset", leader, others)


def black_hole(troubled: Troubled, leader: int, others: list[int]) -> None:
    troubled.disconnect("hole", leader, others)


CAUSES = (drop_both_ways, drop_what_it_sends, drop_what_it_hears, reset, black_hole)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    with start(tmp_path_factory.mktemp("cut")) as made:
        yield made


def given_up(troubled: Troubled) -> int:
    """How often nodes have given up the leadership because no majority acknowledged their log.

    A busy machine elects another leader without a fault now and then, so leaders are not counted.
    """
    key = 'reason="cut",result="let_go"'
    return sum(int(moves(troubled.nodes, node)[key]) for node in NODES)


def is_whole(troubled: Troubled) -> bool:
    """Whether every node has nearly the whole log."""
    members = troubled.nodes.status(troubled.nodes.leader()).get("members", ())
    lags = [each["lag_bytes"] for each in members]
    return len(lags) == len(NODES) and all(lag is not None and lag < 100_000 for lag in lags)


def all_ready(troubled: Troubled) -> bool:
    return all(troubled.nodes.call(node, "GET", "/readyz").status == 200 for node in NODES)


def cut_off(troubled: Troubled, cause: Callable[[Troubled, int, list[int]], None]) -> int:
    """Cut the leader off under load until another one answers; returns the old leader."""
    nodes = troubled.nodes
    nodes.until(lambda: is_whole(troubled))
    old, others = nodes.leader(), nodes.followers()
    warned_s: list[float] = []
    with Load(nodes, body=BODY) as load:
        nodes.until(lambda: len(load.sent) > 20)
        load.longest_s = 0.0
        cause(troubled, old, others)
        before = len(load.sent)

        def another_answers() -> bool:
            if not all_ready(troubled):
                warned_s.append(time.monotonic() - load.answered_at)
            roles = [nodes.status(node).get("role") for node in others]
            return "leader" in roles and len(load.sent) > before + 20

        nodes.until(another_answers)
    assert load.longest_s < OUTAGE_S_MAX, nodes.tails()
    assert min([*warned_s, load.longest_s]) < UNSEEN_S_MAX, nodes.tails()
    nodes.until(lambda: nodes.status(old).get("role") != "leader", "the old one leads on")
    nodes.all_there([f"/v1/topics/t/messages/{name}" for name in load.sent[-20:]])
    return old


@pytest.mark.parametrize("cause", CAUSES)
def test_a_leader_that_cannot_commit_does_not_lead(
    troubled: Troubled, cause: Callable[[Troubled, int, list[int]], None]
) -> None:
    """Another one leads, the old one says that it is not ready, and it follows once it can."""
    nodes = troubled.nodes
    old = cut_off(troubled, cause)
    nodes.until(lambda: nodes.call(old, "GET", "/readyz").status == 503)
    before = given_up(troubled)
    time.sleep(1.0)
    troubled.heal()
    nodes.until(lambda: is_whole(troubled) and all_ready(troubled))
    assert given_up(troubled) == before, nodes.tails()


@pytest.mark.parametrize("trouble", ["slow", "very-slow"])
def test_a_leader_with_slow_followers_leads_on(troubled: Troubled, trouble: str) -> None:
    """What it sends arrives and is not synced: no other node could commit more."""
    nodes = troubled.nodes
    nodes.until(lambda: is_whole(troubled))
    before, others = given_up(troubled), nodes.followers()
    with Load(nodes, body=BODY) as load:
        nodes.until(lambda: len(load.sent) > 20)
        for node in others:
            troubled.begin(node, trouble)
        time.sleep(10)
        assert given_up(troubled) == before, nodes.tails()
        troubled.heal()
        done = len(load.sent)
        nodes.until(lambda: len(load.sent) > done + 20)


def test_a_leader_behind_a_black_hole_does_not_lead_again_for_its_priority(
    tmp_path: Path,
) -> None:
    """It does not flap while the cause lasts, and gets the leadership back once it has healed."""
    with start(tmp_path, priorities={1: 80}) as troubled:
        nodes = troubled.nodes
        nodes.until(lambda: nodes.leader() == 1)
        assert cut_off(troubled, black_hole) == 1
        with Load(nodes, body=BODY) as load:
            end = time.monotonic() + PRIORITY_AFTER_MS / 1000 + 10
            while time.monotonic() < end:
                assert nodes.status(1).get("role") != "leader", nodes.tails()
            assert load.longest_s < OUTAGE_S_MAX
            troubled.heal()
            nodes.until(lambda: nodes.status(1).get("role") == "leader")
