"""Three real nodes whose checkpoints and segments are small, or that take none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.cluster.three_nodes import ThreeNodes

SMALL = """
[limits]
checkpoint_bytes = 200_000
checkpoint_idle_bytes = 1
checkpoint_idle_ms = 200
segment_bytes_max = 100_000
reserve_file_bytes = 0
"""
SLOW = """
[limits]
checkpoint_idle_ms = 600_000
reserve_file_bytes = 0
"""
"""Each node takes its first checkpoint and no other: a start replays the log behind it."""


class Three(ThreeNodes):
    """A cluster in a folder, and a client that finds the leader."""

    wait_s = 40

    def __init__(self, folder: Path, limits: str = SMALL) -> None:
        super().__init__(folder, limits=limits)

    def first_checkpoints(self) -> None:
        """Wait until each node has its first checkpoint, taken once it knows the cluster's time."""
        self.leader()
        for node in self.running:
            self.until((self.data_dir(node) / "checkpoint-1").exists, "it takes no checkpoint")

    def log(self, node: int) -> str:
        return self.log_path(node).read_text()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The leader's answer, whoever it is."""

        def ask() -> Any:
            answer = self.call(self.leader(), method, path, body)
            assert answer.status in (0, 200, 201, 202, 307, 503), answer
            return (answer.json,) if answer.status in (200, 201, 202) else None

        return self.until(ask)[0]

    def send(
        self, count: int, *, name: str = "m", delay_ms: int = 3_600_000, size: int = 2_000
    ) -> None:
        """Sends that can be told apart, some kilobytes each."""
        body = "x" * size
        for first in range(0, count, 20):
            messages = [
                {"id": f"{name}{number}", "body": body, "delay_ms": delay_ms}
                for number in range(first, min(first + 20, count))
            ]
            self.ask("POST", "/v1/topics/t/messages", messages)

    def first_position(self, node: int) -> int:
        """Where its log begins."""
        names = [path.stem for path in (self.data_dir(node) / "log").glob("*.log")]
        return min(map(int, names), default=0)
