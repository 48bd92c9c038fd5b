"""What the processes of the nodes hold: anonymous memory, file descriptors and threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


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
    needs, and frees it then. All else is compared with the first round.
    """
    if not rounds:
        return []
    first, last = rounds[0][1], rounds[-1][1]
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
        before, after = (sum(getattr(each, name) for each in one.values()) for one in (first, last))
        compared.append((f"{name} of all nodes", 1, before, after, slack))
    return [
        f"{what}: {before:,} after round {number}, {after:,} after round {len(rounds)}; allowed "
        f"are {growth:.0%} more"
        for what, number, before, after, slack in compared
        if after > before * (1 + growth) + slack
    ]
