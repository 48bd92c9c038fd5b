"""Three processes: who lost its disk, or finds it damaged, gets a copy and may lead again."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.broker.cluster.copies.three import SLOW, SMALL, Three
from tests.broker.cluster.three_nodes import NODES


@pytest.fixture
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Three]:
    made = Three(tmp_path, getattr(request, "param", SMALL))
    try:
        made.start(new_cluster=True, wait=False)
        yield made
    finally:
        made.clean_up()


def grow(three: Three, node: int, *, name: str) -> None:
    """Sends until the beginning of the leader's log, where `node` would go on, is gone."""
    leader, numbers = three.leader(), itertools.count()

    def is_gone() -> bool:
        three.send(100, name=f"{name}{next(numbers)}-")
        return three.first_position(leader) > 0

    three.until(is_gone, "the log's beginning goes at some time")
    assert node != leader


def other_leader(three: Three, node: int) -> int:
    """The leader, which hands over first if it is this node, as on a machine that stalls."""
    if three.leader() == node:
        three.hand_over()
    return three.leader()


def is_voter_again(three: Three, node: int) -> bool:
    return "this node is a voter again" in three.log(node)


def others(three: Three, node: int) -> list[int]:
    return [other for other in three.running if other != node]


def sent(three: Three) -> int:
    """How many messages the topic has seen, by its leader."""
    found: int = three.ask("GET", "/v1/topics/t/stats")["sent"]
    return found


def test_a_wiped_node_gets_a_copy_and_leads(three: Three) -> None:
    """Its log would begin where no leader's does any more."""
    leader = three.leader()
    wiped = others(three, leader)[0]
    three.send(200, name="a")
    three.ask("POST", "/v1/topics/t/messages", [{"id": "soon", "body": "b"}])
    three.kill(wiped)
    shutil.rmtree(three.data_dir(wiped))
    grow(three, wiped, name="b")
    three.start(wiped)
    three.until(lambda: is_voter_again(three, wiped))
    assert "the copy is in place" in three.log(wiped)
    # The leader goes while the third lacks what was acknowledged last, so this node has to lead.
    leader = other_leader(three, wiped)
    third = next(node for node in NODES if node not in (leader, wiped))
    three.kill(third)
    three.send(20, name="without the third")
    want = sent(three)
    three.kill(leader)
    three.start(third)
    assert three.leader() == wiped, "the third lacks what was acknowledged without it"
    assert sent(three) == want
    three.send(5, name="c")
    got = three.ask("POST", "/v1/topics/t/receive", {"max": 5, "wait_ms": 12_000})
    assert [message["id"] for message in got["messages"]] == ["soon"]


def wipe_far_behind(three: Three) -> int:
    """A node whose disk is lost, in a cluster of some twenty megabytes that has dropped its log."""
    leader = three.leader()
    wiped = others(three, leader)[0]
    # It held this, so the leader keeps no log from before for it.
    three.send(200, name="before")
    three.kill(wiped)
    shutil.rmtree(three.data_dir(wiped))
    three.send(1_000, name="a", size=20_000)
    grow(three, wiped, name="b")
    return wiped


def copies_begun(three: Three, node: int) -> int:
    return three.log(node).count("sends a copy of its folder")


def begun_of_a_copy(three: Three, node: int) -> set[str]:
    """What a node's folder holds of a copy that it has not moved in."""
    folder = three.data_dir(node)
    return {name for name in ("incoming", "copied", "placing") if (folder / name).exists()}


def gives_a_copy(three: Three, node: int) -> bool:
    return "a copy of this folder is sent to" in three.log(node)


def assert_leads(three: Three, node: int) -> None:
    want = sent(three)
    make_lead(three, node)
    assert three.leader() == node
    assert sent(three) == want + 20


@pytest.mark.drill
def test_the_receiver_is_killed_again_and_again(three: Three) -> None:
    """Whenever that is: while files come, while they are moved in, or when all is done."""
    node = wipe_far_behind(three)
    rng = Random(1)
    for _ in range(6):
        names = begun_of_a_copy(three, node)
        if not names:
            # It was through: its disk is lost once more.
            shutil.rmtree(three.data_dir(node), ignore_errors=True)
        begun = copies_begun(three, node)
        three.start(node)
        if "incoming" in names or not names:
            three.until(lambda begun=begun: copies_begun(three, node) > begun)
        else:
            # All of its files had come: it needs no other copy.
            three.until(lambda: not begun_of_a_copy(three, node))
        time.sleep(rng.random() * 0.15)
        three.kill(node)
    three.start(node)
    three.until(lambda: is_voter_again(three, node))
    assert not begun_of_a_copy(three, node)
    assert_leads(three, node)


@pytest.mark.drill
def test_the_giver_is_killed_and_another_one_goes_on(three: Three) -> None:
    """What has come until then is dropped: the next leader gives its own."""
    node = wipe_far_behind(three)
    three.start(node)
    three.until(lambda: copies_begun(three, node) > 0)
    # The one that gets it may be heard of first.
    three.until(lambda: any(gives_a_copy(three, n) for n in NODES))
    leader = next(n for n in NODES if gives_a_copy(three, n))
    three.kill(leader)
    time.sleep(0.5)
    three.start(leader)
    three.until(lambda: is_voter_again(three, node))
    assert_leads(three, node)


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x40
    path.write_bytes(raw)


def make_lead(three: Three, node: int) -> None:
    """Stop the third, let it fall behind, kill the leader: only `node` holds what is committed."""
    leader = other_leader(three, node)
    third = next(other for other in NODES if other not in (node, leader))
    three.kill(third)
    three.send(20, name=f"before {node} leads, {time.monotonic_ns()} ")
    three.kill(leader)
    three.start(third)


@pytest.mark.parametrize("three", [SLOW], indirect=True, ids=["slow"])
def test_a_flipped_byte_of_the_log_is_healed_at_the_start(three: Three) -> None:
    """The folder is set aside, and the node comes back as a learner, then as a voter."""
    three.first_checkpoints()
    three.send(300, name="a")
    node = others(three, three.leader())[0]
    # How far the log is durable is written down twenty times a second.
    three.kept()
    three.kill(node)
    path = max((three.data_dir(node) / "log").glob("*.log"))
    flip(path, path.stat().st_size - 100)
    three.send(100, name="b")
    three.start(node)
    three.until(lambda: is_voter_again(three, node))
    (aside,) = three.data_dir(node).glob("damaged-*")
    assert {path.name for path in aside.iterdir()} >= {"log", "hours", "tick", "damaged"}
    assert_leads(three, node)


def test_a_flipped_byte_of_an_hour_is_healed_when_it_was_met(three: Three) -> None:
    """A leader that meets it ends at once; its next start sets the folder aside."""
    three.send(300, name="a", delay_ms=120_000)
    node = others(three, three.leader())[0]
    three.until(lambda: list((three.data_dir(node) / "hours").glob("*/delay.index")))
    three.stop(node)
    for path in (three.data_dir(node) / "hours").glob("*/delay.index"):
        flip(path, path.stat().st_size - 30)
    three.start(node)
    make_lead(three, node)
    assert three.ended(node) == 66
    assert (three.data_dir(node) / "damaged").exists()
    for other in NODES:
        if other not in three.running and other != node:
            three.start(other)
    three.leader()
    three.start(node)
    three.until(lambda: is_voter_again(three, node))
    (aside,) = three.data_dir(node).glob("damaged-*")
    assert (aside / "hours").is_dir()
    assert not (three.data_dir(node) / "damaged").exists()
    assert_leads(three, node)


@pytest.mark.parametrize("three", [SLOW], indirect=True, ids=["slow"])
def test_damage_without_anybody_who_could_help(three: Three) -> None:
    """It ends as a broker alone would, and leaves all as it is."""
    three.first_checkpoints()
    three.send(100, name="a")
    three.kept()
    node = others(three, three.leader())[0]
    for other in NODES:
        three.kill(other)
    path = max((three.data_dir(node) / "log").glob("*.log"))
    flip(path, path.stat().st_size - 100)
    three.start(node, wait=False)
    assert three.ended(node) == 66
    assert "no other voter with data answers" in three.log(node)
    assert not list(three.data_dir(node).glob("damaged-*"))
