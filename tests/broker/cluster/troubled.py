"""A cluster of real processes that can be put into trouble, and a load that outlives a leader.

Each node runs `troubled_member.py`; a file in its folder of troubles begins one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.cluster.three_nodes import NODES, ThreeNodes

PROGRAM = str(Path(__file__).with_name("troubled_member.py"))
LIMITS = "[limits]\ndisk_reserve_bytes = 8388608\nreserve_file_bytes = 4194304\n"
LATER: dict[str, Any] = {"body": "x" * 200, "delay_ms": 7_200_000}
TOPIC = "/v1/topics/t"


class Troubled:
    """A cluster and its troubles."""

    def __init__(self, nodes: ThreeNodes, troubles: Callable[[int], Path]) -> None:
        self.nodes = nodes
        self._troubles = troubles

    def begin(self, node: int, trouble: str) -> None:
        (self._troubles(node) / trouble).touch()

    def end(self, node: int, trouble: str) -> None:
        (self._troubles(node) / trouble).unlink()

    def disconnect(self, trouble: str, one: int, others: Iterable[int]) -> None:
        """A trouble between a node and others, in both directions."""
        for other in others:
            self.begin(one, f"{trouble}-{other}")
            self.begin(other, f"{trouble}-{one}")

    def heal(self) -> None:
        """End all troubles."""
        for node in NODES:
            for path in self._troubles(node).iterdir():
                path.unlink()

    def sees(self, node: int, other: int) -> object:
        """Why a node takes another one for unfit."""
        members = {each["node"]: each for each in self.nodes.status(node).get("members", ())}
        return members[other]["unfit"] if other in members else None

    def is_quiet(self) -> bool:
        """Whether nobody is full any more and nothing makes the leadership move."""
        leader = self.nodes.leader()
        members = {each["node"]: each for each in self.nodes.status(leader).get("members", ())}
        known = all(each["fit"] is not None for each in members.values())
        full = any(each["unfit"] == "full" for each in members.values())
        return leader in members and members[leader]["fit"] and known and not full


class Load:
    """Sends to whoever leads until it is left; `sent` holds what was answered."""

    def __init__(self, nodes: ThreeNodes, *, body: str = LATER["body"]) -> None:
        self._nodes = nodes
        self._message = LATER | {"body": body}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: list[str] = []
        self.answered_at = 0.0
        self.longest_s = 0.0
        """The longest time without an answer."""
        self.longest_end = 0
        """The number of the send whose answer ended it."""

    def __enter__(self) -> Load:
        self.answered_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        number, at = 0, 0
        while not self._stop.is_set():
            node = NODES[at % len(NODES)]
            name = f"m{number}"
            answer = self._nodes.call(
                node, "POST", f"{TOPIC}/messages", self._message | {"id": name}
            )
            if answer.status != 200:
                at += 1
                time.sleep(0.01)
                continue
            number += 1
            now = time.monotonic()
            if now - self.answered_at > self.longest_s:
                self.longest_s, self.longest_end = now - self.answered_at, number
            self.answered_at = now
            self.sent.append(name)
            time.sleep(0.005)


@contextmanager
def start(
    folder: Path,
    *,
    limits: str = LIMITS,
    priorities: Mapping[int, int] | None = None,
    token: str = "",
) -> Iterator[Troubled]:
    """A cluster that leads; with `token`, the administrator's, callers have to authenticate."""

    def troubles(node: int) -> Path:
        place = folder / f"troubles{node}"
        place.mkdir(exist_ok=True)
        return place

    nodes = ThreeNodes(
        folder,
        limits=limits,
        constants={"delaylog.broker.engine.state.HOT_BYTES_MAX": 0},
        token=token,
        program=lambda node: (sys.executable, PROGRAM, str(troubles(node))),
        more={
            node: f'zone = "z{node}"\npriority = {(priorities or {}).get(node, 50)}'
            for node in NODES
        },
    )
    try:
        nodes.start(new_cluster=True)
        # The first leader puts the members into the log, in a second epoch of its own.
        nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
        yield Troubled(nodes, troubles)
    finally:
        nodes.clean_up()


def assert_kept(nodes: ThreeNodes, sent: list[str]) -> None:
    """Whoever leads has all that was answered for."""
    assert sent
    nodes.all_there([f"{TOPIC}/messages/{name}" for name in sent])


def moves(nodes: ThreeNodes, node: int) -> dict[str, float]:
    answer = nodes.call(node, "GET", "/metrics")
    assert answer.status == 200, nodes.tails()
    lines = answer.body.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if "automatic_handovers_total{" in line)
    return {name.partition("{")[2].rstrip("}"): float(value) for name, value in found.items()}
