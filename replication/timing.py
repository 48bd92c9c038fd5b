"""Limits of replication: each with its name and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds and bytes; tests use other values, for which the relations below must hold."""

    round_ms: int = 50
    """Interval of a leader's rounds."""
    busy_round_ms: int = 10
    """Interval while a message is due soon: five chances for an answer before the gate closes."""
    gate_ms: int = 50
    """How long dispatch goes on after the last tick that a majority has taken. Only hand-outs of
    this time can be repeated at an unplanned failover."""
    stalled_ms: int = 1_000
    """A leader that no majority has acknowledged for this long is cut off: 20 rounds went
    unanswered."""
    retry_min_ms: int = 20
    retry_max_ms: int = 60
    """A refused candidate waits a random time between these, so that two do not retry in step."""
    yield_ms: int = 150
    """How long a node lets a candidate that it has promised begin before it tries itself."""
    fetch_stall_ms: int = 200
    """After this time without an answer of the best log, ask the others again without it."""
    serve_deadline_ms: int = 1_000
    """How long a suggested node has to serve, before another node is given a chance."""
    resign_ms: int = 1_000
    """How long a node that has given up stays out."""
    handover_deadline_ms: int = 1_000
    append_bytes_max: int = 1 << 20
    """Most bytes of frames in one APPEND or FETCHED, unless the first frame alone is larger."""
    window_bytes_max: int = 16 << 20
    """Most bytes that are shipped to a follower and not acknowledged yet."""

    def __post_init__(self) -> None:
        assert self.busy_round_ms < self.gate_ms, "the gate must not close between two rounds"
        assert self.round_ms < self.stalled_ms
        assert self.retry_min_ms <= self.retry_max_ms < self.serve_deadline_ms
        assert self.yield_ms + self.retry_max_ms < self.serve_deadline_ms
        assert self.fetch_stall_ms < self.serve_deadline_ms, "there must be time for another try"
        assert self.append_bytes_max <= self.window_bytes_max


class Now(NamedTuple):
    """The two times of an input."""

    boot_ms: int
    """CLOCK_BOOTTIME: never steps, and runs while the process is stopped or the machine sleeps. The
    gate and all deadlines use it."""
    wall_ms: int
    """The broker's stated time, which frames record."""
