"""Limits of the connections between nodes: each with its name and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.replication.wire import HEADER_SIZE, LAYOUTS

RECORD_BYTES_MAX: Final = HEADER_SIZE + max(layout.size_max for layout in LAYOUTS)
"""Most bytes that one record carries: the largest message fits."""
RECORD_BYTES_GOAL: Final = 1 << 20
"""Most bytes of several messages in one record. A record is used only once it is complete, so in a
longer one the first message would wait for the last."""
SLICE_BYTES: Final = 1 << 20
"""Bytes authenticated at once: about 1 ms, so that a long message does not block the loop."""
TURN_BYTES: Final = 1 << 20
"""Bytes handed to one socket in one turn of the loop; the rest follows in the next turn."""
RECEIVE_BYTES: Final = 64 << 10
"""Bytes read at once: a thousand small records, some milliseconds of work. A longer record gets its
own buffer, which grows with the bytes that arrive."""
GROWTH_BYTES: Final = 4 << 20
"""Growth of that buffer: a length that is not authenticated yet must not allocate its memory."""
JOIN_BYTES_MAX: Final = 64 << 10
"""Blocks below this are joined before they are written; longer ones are written uncopied."""

assert SLICE_BYTES <= RECORD_BYTES_GOAL <= TURN_BYTES < RECORD_BYTES_MAX < 1 << 32


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Milliseconds and bytes; tests use other values, for which the relations below must hold."""

    ping_ms: int = 150
    """After sending nothing for this long, a node sends an empty record as a ping."""
    silent_ms: int = 500
    """A peer that sent no byte for this long is dead: three pings are missing. On a busy machine it
    may be longer (replication/peer_oracle.py)."""
    look_ms: int = 50
    """Interval of the checks of both."""
    stranger_ms: int = 1_000
    """Deadline of the handshake."""
    strangers_max: int = 32
    """Most connections that are not authenticated yet. One more closes the oldest: a member needs
    two round trips only, so a flood of idle connections cannot keep it out."""
    redial_min_ms: int = 20
    redial_max_ms: int = 200
    """A lost peer is dialled again after a random time, whose bound grows from min to max."""
    refusals_quick: int = 5
    """After more refusals in a row the pauses double, to `refused_max_ms`: such a cause lasts, as
    another release or another secret. An ended process refuses nobody, so its return is awaited at
    the pace above."""
    refused_max_ms: int = 5_000
    settled_ms: int = 1_000
    """A connection that a peer ends earlier counts as refused."""
    stop_ms: int = 250
    """How long `stop` waits for sent bytes to drain."""
    outgoing_bytes_max: int = 64 << 20
    """Most bytes that wait for a slow peer: above it the connection is closed, and replication
    ships the lost frames again. One message alone may be longer."""

    def __post_init__(self) -> None:
        assert self.look_ms <= self.ping_ms, "pings are sent when it is looked"
        assert 2 * self.ping_ms + self.look_ms < self.silent_ms, "one ping may be late"
        assert 0 < self.redial_min_ms <= self.redial_max_ms
        assert self.redial_max_ms <= self.refused_max_ms
        assert self.strangers_max > 0
