"""What the judge of a drill says about pauses, memory, and outages that no node admits."""

from __future__ import annotations

import os

import pytest

from delaylog.broker.drills.node_watch import Held, growth_faults, held_by, unseen_outages
from delaylog.broker.drills.rounds import Round, Strike
from delaylog.broker.drills.timeline import Served
from delaylog.broker.drills.verdict import Limits, missed_targets, over_limit


def paused(send_ms: float, what: str = "") -> Round:
    return Round(Strike(what, 1, 0.0, 0.0, 0.0), silence_ms=(send_ms, 9_999.0))


def test_a_long_pause_of_sends_is_named() -> None:
    rounds = [paused(3_000), paused(3_001, "TCP cut"), paused(10)]
    (text,) = over_limit(rounds, Limits(pause_ms=3_000))
    assert text.startswith("round 2 (TCP cut): no send was acknowledged for 3,001 ms")
    assert over_limit(rounds, Limits()) == []


def test_missed_targets_are_named() -> None:
    # One of a hundred is slow: that is the maximum, not the 99th percentile.
    pauses_ms = [300.0] * 99 + [700.0]
    (text,) = missed_targets(pauses_ms, 400, 600)
    assert text.startswith("max of the pauses of sends is 700 ms")
    assert len(missed_targets([*pauses_ms[1:], 650.0], 400, 600)) == 2
    assert missed_targets([300.0, 400.0], 400, 600) == []
    assert missed_targets([], 400, 600) == []


SMALL = Held(100_000, 90, 12)
LARGE = Held(900_000, 90, 12)


@pytest.mark.parametrize(
    ("after", "named"),
    [
        (Held(120_000, 90, 12), []),
        (Held(120_001, 90, 12), ["memory_kib of node 2"]),
        (Held(100_000, 136, 12), []),
        (Held(100_000, 137, 12), ["descriptors of all nodes"]),
        (Held(100_000, 90, 20), ["threads of all nodes"]),
        (Held(500_000, 900, 80), ["memory_kib", "descriptors", "threads"]),
    ],
)
def test_growth_since_the_first_round(after: Held, named: list[str]) -> None:
    rounds = [(2, {1: LARGE, 2: SMALL}), (1, {1: SMALL, 2: LARGE}), (2, {1: SMALL, 2: after})]
    assert growth_faults([], 0.2) == []
    texts = growth_faults(rounds, 0.2)
    assert len(texts) == len(named)
    assert all(text.startswith(name) for text, name in zip(texts, named, strict=True))


@pytest.mark.parametrize(("leaked", "named"), [(0, 0), (1, 1)])
def test_a_descriptor_a_round_is_found_among_connections_that_come_and_go(
    leaked: int, named: int
) -> None:
    """In the first round, clients have connections to one node, and later to two or three."""
    rounds = [
        (1, {1: Held(100_000, (206 if number == 0 else 264 + number % 3) + leaked * number, 12)})
        for number in range(100)
    ]
    assert len(growth_faults(rounds, 0.2)) == named


def test_a_node_that_has_not_led_yet_has_nothing_to_free() -> None:
    """Node 1 comes to lead in the second round, and is deposed in the third one."""
    rounds = [(2, {1: SMALL, 2: LARGE}), (2, {1: LARGE, 2: LARGE}), (1, {1: LARGE, 2: LARGE})]
    assert growth_faults(rounds, 0.2) == []
    assert growth_faults(rounds[:2], 0.2) == []
    (text,) = growth_faults([*rounds, (2, {1: Held(1_080_001, 90, 12), 2: SMALL})], 0.2)
    assert text.startswith("memory_kib of node 1: 900,000 after round 3, 1,080,001 after round 4")


def test_what_this_process_holds() -> None:
    before = held_by(os.getpid())
    read, write = os.pipe()
    try:
        after = held_by(os.getpid())
    finally:
        os.close(read)
        os.close(write)
    assert after.descriptors == before.descriptors + 2
    assert before.memory_kib > 1_000
    assert before.threads >= 1


def sends(*ended_ms: float) -> list[Served]:
    return [Served(each - 1, each, 1) for each in ended_ms]


@pytest.mark.parametrize(
    ("all_ready", "outages"),
    [
        ([], 0),
        # Within the first two seconds.
        ([(2_900, 2_950)], 0),
        ([(3_100, 3_150)], 1),
        # Each outage is told once.
        ([(3_100, 3_150), (4_000, 4_100)], 1),
        ([(3_100, 3_150), (8_500, 8_550)], 2),
        # A send was acknowledged during the look.
        ([(5_900, 6_100)], 0),
        # Before the first send, and after the last one.
        ([(500, 600), (20_000, 20_100)], 0),
    ],
)
def test_outages_in_which_all_nodes_are_ready(
    all_ready: list[tuple[float, float]], outages: int
) -> None:
    found = unseen_outages(sends(1_000, 6_000, 9_000, 9_100), all_ready)
    assert len(found) == outages
    assert all("/readyz of all nodes was 200" in text for text in found)


def test_an_outage_that_was_told_is_over_when_the_nodes_are_ready_again() -> None:
    """They are ready a little before the next send is acknowledged, and not for long."""
    told = [3_000.0, 5_500.0]
    assert unseen_outages(sends(1_000, 6_000), [(5_900, 5_950)], told) == []
    assert len(unseen_outages(sends(1_000, 9_000), [(8_000, 8_050)], told)) == 1
