"""Every span and bound of the connections between nodes by its name, and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.replication.wire import HEADER_SIZE, LAYOUTS

RECORD_BYTES_MAX: Final = HEADER_SIZE + max(layout.size_max for layout in LAYOUTS)
"""What one record carries at most: the largest message fits."""
RECORD_BYTES_GOAL: Final = 1 << 20
"""Several messages together are no longer than this. What a record carries is believed only when
all of it is there, so a longer one would make its first message wait for its last."""
SLICE_BYTES: Final = 1 << 20
"""Authenticated in one go: about a millisecond, so that a long message does not hold the loop."""
TURN_BYTES: Final = 1 << 20
"""Handed to one socket in one turn of the loop; what is left follows in the next."""
RECEIVE_BYTES: Final = 64 << 10
"""Read at once: a thousand small records, some milliseconds of work. Longer records get a buffer of
their own, which grows with what arrives."""
GROWTH_BYTES: Final = 4 << 20
"""By so much: a length that nobody has vouched for yet must not cost the memory it speaks of."""
JOIN_BYTES_MAX: Final = 64 << 10
"""Blocks below this are joined before they are written; longer ones are written uncopied."""

assert SLICE_BYTES <= RECORD_BYTES_GOAL <= TURN_BYTES < RECORD_BYTES_MAX < 1 << 32


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Milliseconds and bytes; tests take others, the relations below must hold."""

    ping_ms: int = 150
    """Having sent nothing for so long, a node sends an empty record: it is still there."""
    silent_ms: int = 500
    """Without any byte for so long, a peer is dead: three pings did not come."""
    look_ms: int = 50
    """How often both are looked at."""
    stranger_ms: int = 1_000
    """Who has not proven itself by then is turned away."""
    strangers_max: int = 32
    """Unproven connections at once; one more, and the oldest of them goes: who belongs here is
    through in two round trips, so a flood that lingers cannot keep it out."""
    redial_min_ms: int = 20
    redial_max_ms: int = 200
    """A lost peer is dialled again after a random time, which grows from one to the other."""
    stop_ms: int = 250
    """How long `stop` lets what was sent before drain."""
    outgoing_bytes_max: int = 64 << 20
    """Waiting for a peer that reads too slowly: beyond it the connection is given up, and what was
    lost is shipped again on the next one. One message may be longer than that by itself."""

    def __post_init__(self) -> None:
        assert self.look_ms <= self.ping_ms, "pings are sent when it is looked"
        assert 2 * self.ping_ms + self.look_ms < self.silent_ms, "one ping may be late"
        assert 0 < self.redial_min_ms <= self.redial_max_ms
        assert self.strangers_max > 0
