"""Three real nodes whose checkpoints and segments are small, or that take none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.broker.cluster.three_nodes import ThreeNodes

NO_RESERVE = "[limits]\nreserve_file_bytes = 0\n"
_UPKEEP = "delaylog.broker.engine.upkeep.checkpoints"
SMALL = {
    f"{_UPKEEP}.CHECKPOINT_BYTES": 200_000,
    f"{_UPKEEP}.IDLE_BYTES": 1,
    f"{_UPKEEP}.IDLE_MS": 200,
    "delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX": 100_000,
}
SLOW = {f"{_UPKEEP}.IDLE_MS": 600_000}
"""Each node takes its first checkpoint and no other: a start replays the log behind it."""


class Three(ThreeNodes):
    """A cluster in a folder, and a client that finds the leader."""

    def __init__(self, folder: Path, constants: Mapping[str, float] = SMALL) -> None:
        super().__init__(folder, limits=NO_RESERVE, constants=constants)

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
