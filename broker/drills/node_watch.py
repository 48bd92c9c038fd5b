"""What a drill sees of the nodes: their logs, what their processes hold, and `/readyz`.

The logs say where a leader handed over, and where the next one began. Processes hold anonymous
memory, file descriptors and threads.

`/readyz` of all nodes is watched to find outages that no node admits. A load balancer and a pager
see the cluster only through `/readyz`. So no send may be missing for longer than two seconds while
every node answers 200.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median_low
from typing import Any, Final

from delaylog.broker.drills.timeline import Served, wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.client.child_broker import ChildBroker

# ----------------------------------------------------------------------------------------- logs

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

    def led(self, leader: int, at_ms: float) -> bool:
        """Whether `leader`, which led at the mark, led at `at_ms`, a wall time.

        It did if no other node had begun to lead by then, or if it had been elected again.
        """
        began = [
            (datetime.fromisoformat(entry["time"]).timestamp() * 1_000, node)
            for node, entry in self.entries(LEADS)
        ]
        last = max((each for each in began if each[0] <= at_ms), default=None)
        return last is None or last[1] == leader

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


# ----------------------------------------------------------------- memory, descriptors, threads


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds. Pages of files do not count: the kernel may take them back."""

    memory_kib: int
    descriptors: int
    threads: int


_OF_ALL: Final = {"descriptors": 10, "threads": 3}
"""These are compared as the sum of all nodes, since clients follow the leader, with some slack for
connections that come and go."""


def held_by(process: int) -> Held:
    """What a process holds now. Raises OSError if there is no such process, or no Linux /proc."""
    proc = Path("/proc", str(process))
    fields = dict(
        line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
    )
    descriptors = sum(1 for _ in (proc / "fd").iterdir())
    return Held(int(fields["RssAnon"].split()[0]), descriptors, int(fields["Threads"]))


def growth_faults(rounds: Sequence[tuple[int, dict[int, Held]]], growth: float) -> list[str]:
    """A text for each thing of which the nodes hold more after the last round than they should.

    `rounds` = for each round the node that led before it, and what the nodes held afterwards;
    `growth` = the share that is allowed in addition, for example 0.2. The memory of a node is
    compared with the first round that ended a leadership of its own: a leader has what no follower
    needs, and frees it then. Of all else, the median of the first tenth of the rounds is compared
    with that of the last tenth: clients keep connections to former leaders, and some close.
    """
    if not rounds:
        return []
    last, tenth = rounds[-1][1], max(len(rounds) // 10, 1)
    deposed: dict[int, tuple[int, Held]] = {}
    for number, (led, held) in enumerate(rounds, 1):
        if led in held:
            deposed.setdefault(led, (number, held[led]))
    compared = [
        (f"memory_kib of node {node}", number, before.memory_kib, last[node].memory_kib, 0)
        for node, (number, before) in sorted(deposed.items())
        if node in last
    ]
    for name, slack in _OF_ALL.items():
        sums = [sum(getattr(each, name) for each in held.values()) for _, held in rounds]
        before, after = median_low(sums[:tenth]), median_low(sums[-tenth:])
        compared.append((f"{name} of all nodes", tenth, before, after, slack))
    return [
        f"{what}: {before:,} after round {number}, {after:,} after round {len(rounds)}; allowed "
        f"are {growth:.0%} more"
        for what, number, before, after, slack in compared
        if after > before * (1 + growth) + slack
    ]


# ------------------------------------------------------------------------------------ readiness

LOOK_EVERY_S: Final = 0.2
SILENT_MS: Final = 2_000.0
"""An outage of this length must be visible."""


class ReadinessWatch:
    """Asks all nodes again and again while its block runs."""

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self.all_ready: list[tuple[float, float]] = []
        """Begin and end of each look at which every node answered 200."""
        self.not_ready_ms: list[float] = []
        """End of each other look."""

    async def __aenter__(self) -> ReadinessWatch:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            began_ms = wall_ms()
            answers = await asyncio.gather(*(self._trio.get(node, "/readyz") for node in NODES))
            if all(status == 200 for status, _ in answers):
                self.all_ready.append((began_ms, wall_ms()))
            else:
                self.not_ready_ms.append(wall_ms())
            await asyncio.sleep(LOOK_EVERY_S)


def unseen_outages(
    sends: Sequence[Served],
    all_ready: Sequence[tuple[float, float]],
    not_ready_ms: Sequence[float] = (),
) -> list[str]:
    """A text for each outage of sends during which every node was ready for long."""
    ended_ms = [each.ended_ms for each in sends]
    found: dict[float, str] = {}
    for began_ms, until_ms in all_ready:
        at = bisect_left(ended_ms, began_ms)
        if at in (0, len(sends)) or ended_ms[at] < until_ms:
            continue
        last_ms, next_ms = ended_ms[at - 1], ended_ms[at]
        seen = bisect_left(not_ready_ms, began_ms)
        since_ms = max(last_ms, not_ready_ms[seen - 1]) if seen else last_ms
        if began_ms - since_ms > SILENT_MS and last_ms not in found:
            found[last_ms] = (
                f"/readyz of all nodes was 200 for {began_ms - since_ms:,.0f} ms without an "
                f"acknowledged send, in an outage of {next_ms - last_ms:,.0f} ms"
            )
    return list(found.values())
