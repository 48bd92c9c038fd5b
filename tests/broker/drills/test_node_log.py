"""What nodes logged since a moment, and whether one went on where the other had handed over."""

from __future__ import annotations

import json
from pathlib import Path

from delaylog.broker.drills.node_watch import HANDED_OVER, LEADS, LogMark
from delaylog.client.child_broker import ChildBroker


def say(broker: ChildBroker, message: str, **members: object) -> None:
    with broker.log_path.open("a") as file:
        file.write(json.dumps({"message": message, **members}) + "\n")


def test_drift(tmp_path: Path) -> None:
    nodes = {node: ChildBroker(tmp_path / f"node-{node}") for node in (1, 2)}
    say(nodes[2], f"{LEADS}, epoch 0x1", tick=[1, 1, 1])
    mark = LogMark(nodes)
    assert mark.entries(LEADS) == []
    assert mark.drift() is None, "nobody handed over"
    say(nodes[1], HANDED_OVER, to=2, tick=[50, 7, 900])
    with nodes[2].log_path.open("a") as file:
        file.write("Traceback: no JSON\n[1]\n")
    assert mark.drift() is None, "nobody took it"
    say(nodes[2], f"{LEADS}, epoch 0x2", tick=[50, 9, 900])
    assert mark.drift() == 2
    assert [node for node, _ in mark.entries(LEADS)] == [2]


def test_a_leader_of_before_leads_again_once_it_is_elected(tmp_path: Path) -> None:
    nodes = {node: ChildBroker(tmp_path / f"node-{node}") for node in (1, 2)}
    mark = LogMark(nodes)
    assert mark.led(1, 5_000), "nobody else does"
    say(nodes[2], f"{LEADS}, epoch 0x2", time="1970-01-01T00:00:06.000Z")
    say(nodes[1], f"{LEADS}, epoch 0x3", time="1970-01-01T00:00:08.000Z")
    assert [mark.led(1, at_ms) for at_ms in (5_999, 6_000, 7_999, 8_000)] == [1, 0, 0, 1]
