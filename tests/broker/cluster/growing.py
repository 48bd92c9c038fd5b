"""A cluster whose members change: up to five real processes, each with its own cluster file."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from delaylog.client.child_broker import free_ports
from tests.broker.answer import Answer
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes

ALL = (1, 2, 3, 4, 5)


class Growing(ThreeNodes):
    """Nodes 1 to 5; `found` says who begins."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        ports = free_ports(4)
        self.http |= {4: ports[0], 5: ports[1]}
        self.peers |= {4: ports[2], 5: ports[3]}

    def file_for(self, node: int, others: Iterable[int]) -> None:
        """Write a node's cluster file; it names the node and the others."""
        lines = ['cluster = "three"', 'secret_file = "cluster.secret"']
        for each in sorted({node, *others}):
            lines += [f"[members.{each}]", *(f'{k} = "{v}"' for k, v in self.contact(each).items())]
        self.configs[node] = self.folder / f"cluster{node}.toml"
        self.configs[node].write_text("\n".join(lines) + "\n")

    def contact(self, node: int) -> dict[str, str]:
        return {
            "name": NAMES.get(node, f"node{node}"),
            "peer": f"127.0.0.1:{self.peers[node]}",
            "http": f"127.0.0.1:{self.http[node]}",
        }

    def found(self, *nodes: int) -> None:
        for node in nodes:
            self.file_for(node, nodes)
        self.start(*nodes, new_cluster=True)
        self.until(
            lambda: self.status(self.leader()).get("version"), "the log never knew its members"
        )
        # A founder that starts late may begin as a learner, until the leader has heard of it.
        self.until(lambda: len(self.voters()) == len(nodes), "not every founder votes")

    def change(self, action: str, *nodes: int, **contact: Any) -> Answer:
        """Ask the leader."""
        body = {"action": action, "nodes": [str(node) for node in nodes], **contact}
        return self.call(self.leader(), "POST", "/v1/cluster/members", body)

    def changed(self, action: str, *nodes: int, **contact: Any) -> dict[str, Any]:
        """What the cluster is, once it has changed; a node that lags is waited for."""

        def once() -> dict[str, Any] | None:
            answer = self.change(action, *nodes, **contact)
            if answer.status == 409 and "caught up" in answer.json["detail"]:
                return None
            if answer.status == 409 and "this node does not lead" in answer.json["detail"]:
                return None
            if answer.status == 200:
                return answer.json  # type: ignore[no-any-return]
            # The leader may change under way; what was asked for is then there or not.
            assert answer.status in (0, 503), (answer.status, answer.json)
            return None

        found: dict[str, Any] = self.until(once, f"{action} {nodes} was never done")
        return found

    def join(self, *nodes: int) -> None:
        """Add nodes as learners and start them."""
        for node in nodes:
            self.changed("add", node, **self.contact(node))
            self.file_for(node, self.running)
            self.start(node)

    def voters(self) -> list[str]:
        members = self.on_leader("GET", "/v1/cluster").json["members"]
        return [each["name"] for each in members if each["voter"]]

    def all_vote(self, node: int) -> None:
        """Wait until all three vote, of which this one has just started as a learner.

        It knows that before the leader hears of it.
        """
        self.until(lambda: self.status(node).get("role") == "follower", "it does not vote")
        self.until(lambda: len(self.voters()) == 3, "it is not counted")


class Load:
    """Sends a message after the other to whoever takes them, and knows which were acknowledged."""

    def __init__(self, nodes: Growing) -> None:
        self._nodes = nodes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[str] = []
        self.refused = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number, at = 0, 0
        while not self._ended.is_set():
            running = self._nodes.running
            node = running[at % len(running)]
            body = {"id": f"m{number}", "body": "x", "delay_ms": 3_600_000}
            answer = self._nodes.call(node, "POST", "/v1/topics/t/messages", body)
            if answer.status in (200, 409):
                self.acknowledged.append(f"m{number}")
                number += 1
            else:
                self.refused += 1
                at += 1

    def all_there(self) -> None:
        """Nothing that was acknowledged is missing."""
        self._nodes.all_there([f"/v1/topics/t/messages/{name}" for name in self.acknowledged])


__all__ = ["ALL", "NODES", "Growing", "Load"]
