"""What nodes logged since a moment, and whether one went on where the other had handed over."""

from __future__ import annotations

import json
from pathlib import Path

from delaylog.broker.drills.node_log import HANDED_OVER, LEADS, LogMark
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
