"""Every span and bound of replication by its name, and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds and bytes; tests take others, the relations below must hold."""

    round_ms: int = 50
    """A leader with nothing to say says so this often."""
    busy_round_ms: int = 10
    """While anything is due soon: five chances for an answer before the gate closes."""
    gate_ms: int = 50
    """Dispatch goes on that long after the last tick that a majority has. It is the bound of what
    can be handed out twice at an unplanned fail-over."""
    retry_min_ms: int = 20
    retry_max_ms: int = 60
    """A refused candidate waits a random time between these, so that two do not duel for ever."""
    yield_ms: int = 150
    """A node that has promised another one gives it that long to begin before it tries itself."""
    fetch_stall_ms: int = 200
    """The node with the best log has not answered for so long: ask the others anew without it."""
    serve_deadline_ms: int = 1_000
    """Not serving by then after the oracle's word: another node may do better."""
    resign_ms: int = 1_000
    """How long a node that gave up stays out."""
    handover_deadline_ms: int = 1_000
    append_bytes_max: int = 1 << 20
    """Frames of one APPEND or FETCHED together, unless the first alone is larger."""
    window_bytes_max: int = 16 << 20
    """Shipped to a follower and not acknowledged: beyond it, it has to catch up first."""

    def __post_init__(self) -> None:
        assert self.busy_round_ms < self.gate_ms, "the gate must not close between two rounds"
        assert self.retry_min_ms <= self.retry_max_ms < self.serve_deadline_ms
        assert self.yield_ms + self.retry_max_ms < self.serve_deadline_ms
        assert self.fetch_stall_ms < self.serve_deadline_ms, "there must be time for another try"
        assert self.append_bytes_max <= self.window_bytes_max


class Now(NamedTuple):
    """The two times that come in with every input."""

    boot_ms: int
    """CLOCK_BOOTTIME: never steps, and goes on while the process is stopped or the machine sleeps.
    The gate and every deadline are measured by it."""
    wall_ms: int
    """The broker's stated time: what stands in frames."""
