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


_SLACK: Final = {"memory_kib": 0, "descriptors": 10, "threads": 3}
"""A few connections and threads come and go with the load."""


def held_by(process: int) -> Held:
    """What a process holds now. Raises OSError if there is no such process, or no Linux /proc."""
    proc = Path("/proc", str(process))
    fields = dict(
        line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
    )
    descriptors = sum(1 for _ in (proc / "fd").iterdir())
    return Held(int(fields["RssAnon"].split()[0]), descriptors, int(fields["Threads"]))


def growth_faults(held: Sequence[dict[int, Held]], growth: float) -> list[str]:
    """A text for each node that holds more after the last round than after the first one.

    `growth` is the share that is allowed in addition, for example 0.2.
    """
    found = []
    for node, last in held[-1].items():
        first = held[0][node]
        for name, slack in _SLACK.items():
            before, after = getattr(first, name), getattr(last, name)
            if after > before * (1 + growth) + slack:
                found.append(
                    f"{name} of node {node}: {before:,} after the first round, {after:,} after "
                    f"round {len(held)}; allowed are {growth:.0%} more"
                )
    return found
