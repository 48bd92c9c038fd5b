"""Reads the nodes' logs: where a leader handed over, and where the next one began."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delaylog.client.child_broker import ChildBroker

HANDED_OVER = "handed over"
LEADS = "this node leads"


class LogMark:
    """The end of each node's log at one time; reads what was logged since."""

    def __init__(self, nodes: dict[int, ChildBroker]) -> None:
        self._from = {
            node: (broker.log_path, _size(broker.log_path)) for node, broker in nodes.items()
        }

    def entries(self, starts: str) -> list[tuple[int, dict[str, Any]]]:
        """(node, entry) of the entries since the mark whose message starts with `starts`."""
        return [
            (node, entry)
            for node, (path, offset) in self._from.items()
            for entry in _entries(path, offset)
            if str(entry.get("message", "")).startswith(starts)
        ]

    def others_led(self, leader: int) -> bool:
        """Whether another node than `leader` has begun to lead since the mark."""
        return any(node != leader for node, _ in self.entries(LEADS))

    def drift(self) -> int | None:
        """Difference between the tick that was handed over and the next leader's first one.

        The difference in seconds plus the difference in released rows. None if no node handed over
        or the chosen node did not lead.
        """
        given = self.entries(HANDED_OVER)
        if not given:
            return None
        _, entry = given[-1]
        taken = [each for node, each in self.entries(LEADS) if node == entry["to"]]
        if not taken:
            return None
        before: list[int] = entry["tick"]
        after: list[int] = taken[0]["tick"]
        return abs(after[0] - before[0]) + abs(after[1] - before[1])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _entries(path: Path, offset: int) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # A line of the Python interpreter, or a line that a kill cut short.
            if isinstance(entry, dict):
                yield entry
