"""Looks on while an operator is at work, and judges what clients were told.

Whoever says that it leads an epoch is the only one that ever does: of all that nodes answer, asked
again and again, and of all that their logs say. The history is judged by `delaylog check`; what a
failover repeats was handed out in the last 50 ms of the epoch before.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterable
from pathlib import Path

from delaylog.broker.history import CheckSettings, check_files
from delaylog.replication.epochs import epoch_counter, epoch_node
from delaylog.replication.replica import Timing
from tests.broker.cluster.random_operator.load import LEASE_MS, Delivery
from tests.broker.cluster.random_operator.nodes import Nodes

RULES = frozenset("ABCDEHJ")
LOOK_S = 0.04
TOLERANCE_MS = 5
"""A lease's end is rounded, and two nodes told the times."""
WINDOW_MS = Timing().gate_ms + 10
EXCUSED_S = 1.0
"""A process that is killed loses the ticks that it had in memory; so does a disk that is lost."""


class Watcher:
    """Asks all nodes who leads, until it is told to end."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.leaders: dict[tuple[int, int], set[int]] = {}
        """(counter, node) of an epoch -> who has said that it leads it."""
        self.looks = 0
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(node,), daemon=True) for node in nodes.http
        ]

    def __enter__(self) -> Watcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, node: int) -> None:
        while not self._ended.wait(LOOK_S):
            port = self._nodes.http[node]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            try:
                connection.request("GET", "/v1/cluster")
                said = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                continue
            finally:
                connection.close()
            self.looks += 1
            if said.get("role") == "leader":
                epoch = said["epoch"]["counter"], said["epoch"]["node"]
                self.leaders.setdefault(epoch, set()).add(node)


def check_leaders(watcher: Watcher, logs: Iterable[Path]) -> list[str]:
    """What is wrong with who led."""
    wrong = []
    for epoch, nodes in watcher.leaders.items():
        if nodes != {epoch[1]}:
            wrong.append(f"nodes {sorted(nodes)} say that they lead epoch {epoch}")
    led: dict[int, str] = {}
    for path in logs:
        for line in path.read_text(errors="replace").splitlines():
            if "this node leads, epoch" not in line:
                continue
            epoch_number = json.loads(line)["epoch"]
            if epoch_number in led:
                wrong.append(f"{path.name} and {led[epoch_number]} led epoch {epoch_number:#x}")
            led[epoch_number] = path.name
            node = int(path.stem[1:])
            if epoch_node(epoch_number) != node:
                wrong.append(f"node {node} led epoch {epoch_number:#x}, not its own")
    counters = [epoch_counter(epoch_number) for epoch_number in led]
    if len({*counters}) < len(counters):
        wrong.append(f"two nodes led under one counter: {sorted(led)}")
    return wrong


def check_history(history: Path) -> tuple[list[str], dict[str, int]]:
    """What `delaylog check` finds, and how often each rule was tried."""
    report = check_files([history], CheckSettings(bound_ms=0, lease_ms=LEASE_MS, rules=RULES))
    wrong = [
        f"rule {rule}: {each.id}: {each.text}"
        for rule, found in report.rules.items()
        for each in found.examples
    ]
    tried = {rule: found.checked for rule, found in report.rules.items()}
    return wrong, tried | {"acknowledged": report.fates.acknowledged, "lost": report.fates.lost}


def check_repeats(
    deliveries: list[Delivery], faults: list[tuple[float, float]]
) -> tuple[list[str], int]:
    """What was handed out again under an open lease, beyond what a failover may repeat.

    `faults` = stretches of wall time, in seconds, in which processes were killed, disks lost or
    clocks stepped.
    """
    wrong, count = [], 0
    last_ms: dict[int, int] = {}
    for one in deliveries:
        last_ms[one.epoch] = max(last_ms.get(one.epoch, 0), one.now_ms)
    newest: dict[str, Delivery] = {}
    for two in sorted(deliveries, key=lambda each: (each.now_ms, each.wall_ms)):
        one = newest.get(two.id, two)
        newest[two.id] = two
        if one is two or two.now_ms >= one.until_ms - TOLERANCE_MS:
            continue
        count += 1
        span_ms = last_ms[one.epoch] - one.now_ms
        if one.epoch != two.epoch and span_ms <= WINDOW_MS:
            continue
        first, last = one.wall_ms / 1000 - 0.1, two.wall_ms / 1000
        if one.epoch != two.epoch and any(a <= last and b + EXCUSED_S >= first for a, b in faults):
            continue
        wrong.append(f"repeated, {span_ms} ms before the end of its epoch: {one}, {two}")
    return wrong, count
