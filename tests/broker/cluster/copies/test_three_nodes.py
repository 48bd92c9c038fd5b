"""Three processes: a node that lost its disk, or finds it damaged, gets a copy and may lead again."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.copies.three import NODES, Three, until


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    made = Three(tmp_path)
    try:
        for node in NODES:
            made.start(node, "--new-cluster", wait=False)
        yield made
    finally:
        made.kill_all()


def grow(three: Three, node: int, *, name: str) -> None:
    """Sends until the beginning of the leader's log, where `node` would go on, is gone."""
    leader, number = three.leader(), 0
    while three.first_position(leader) == 0:
        three.send(100, name=f"{name}{number}-")
        number += 1
        assert number < 60, "the log's beginning goes at some time"
    assert node != leader


def is_voter_again(three: Three, node: int) -> bool:
    return "this node is a voter again" in three.log(node)


def others(three: Three, node: int) -> list[int]:
    return [other for other in three.processes if other != node]


def counts(three: Three) -> dict[str, int]:
    """As the leader has them."""
    found: dict[str, int] = three.ask("GET", "/v1/topics/t/stats")["counts"]
    return found


def test_a_wiped_node_gets_a_copy_and_leads(three: Three) -> None:
    """Its log would begin where no leader's does any more."""
    leader = three.leader()
    wiped = others(three, leader)[0]
    three.send(200, name="a")
    three.ask("POST", "/v1/topics/t/messages", [{"id": "soon", "body": "b"}])
    three.end(wiped, signal.SIGKILL)
    shutil.rmtree(three.data(wiped))
    grow(three, wiped, name="b")
    three.start(wiped)
    until(lambda: is_voter_again(three, wiped))
    assert "the copy is in place" in three.log(wiped)
    # The leader goes while the third lacks what was acknowledged last, so this node has to lead.
    leader = three.leader()
    third = next(node for node in NODES if node not in (leader, wiped))
    three.end(third, signal.SIGKILL)
    three.send(20, name="without the third")
    want = counts(three)
    three.end(leader, signal.SIGKILL)
    three.start(third)
    assert three.leader() == wiped, "the third lacks what was acknowledged without it"
    assert counts(three) == want
    three.send(5, name="c")
    got = three.ask("POST", "/v1/topics/t/receive", {"max": 5, "wait_ms": 5_000})
    assert [message["id"] for message in got["messages"]] == ["soon"]


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x40
    path.write_bytes(raw)


@pytest.mark.parametrize("what", ["log", "hour"])
def test_a_flipped_byte_is_healed(three: Three, what: str) -> None:
    """The folder is set aside at the start, or at the start after it was met."""
    three.send(300, name="a")
    leader = three.leader()
    node = others(three, leader)[0]
    until(lambda: list((three.data(node) / "hours").glob("*/delay.index")))
    three.end(node)
    if what == "log":
        path = max((three.data(node) / "log").glob("*.log"))
        flip(path, path.stat().st_size - 100)
    else:
        path = min((three.data(node) / "hours").glob("*/delay.index"))
        flip(path, path.stat().st_size - 30)
    three.send(100, name="b")
    three.start(node)
    until(lambda: is_voter_again(three, node))
    assert list(three.data(node).glob("damaged-*")), "nothing is deleted"
    before = counts(three)
    third = next(other for other in NODES if other not in (node, three.leader()))
    three.end(third)
    three.send(20, name="c")
    three.end(three.leader(), signal.SIGKILL)
    three.start(third)
    assert three.leader() == node
    after = counts(three)
    assert after["living"] == before["living"] + 20


def test_damage_without_anybody_who_could_help(three: Three) -> None:
    """It ends as a broker alone would, and leaves all as it is."""
    three.send(100, name="a")
    node = others(three, three.leader())[0]
    for other in NODES:
        three.end(other)
    path = max((three.data(node) / "log").glob("*.log"))
    flip(path, path.stat().st_size - 100)
    three.start(node, wait=False)
    assert three.processes[node].wait(40) == 1
    assert "no other voter that holds data answers" in three.log(node)
    assert not list(three.data(node).glob("damaged-*"))
