"""One table of limits: the sizes and counts that an operator may set, each with a sentence of why.

Bounds that nobody has a reason to change are constants beside the code that uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX

HORIZON_MS_MAX: Final = 50 * 366 * 86_400_000
"""Upper bound of `horizon_ms`: the hours of a ref end in the year 2089 (storage/layout.py)."""
NUMBER_MAX: Final = 1 << 53
"""Upper bound of every limit: JSON numbers are exact up to here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one node; configuration may change them."""

    body_bytes_max: int = 4 << 20
    """One message's body: larger payloads belong in an object store."""
    request_bytes_max: int = 64 << 20
    """One request: what may sit in memory per connection."""
    bodies_bytes_max: int = 256 << 20
    """Bodies of all requests that are being read or answered; beyond it a request gets 503.
    Briefly twice as much, while the pieces of a body are joined."""
    bulk_rows_max: int = 100_000
    """Rows of one bulk body: one frame, one slice of apply."""
    horizon_ms: int = 10 * 366 * 86_400_000
    """How far ahead a message may be due."""
    receive_max: int = 10_000
    """Messages of one receive: one reply, one frame."""
    leased_max: int = 1_000_000
    """Messages under lease per group: 27 bytes of memory each."""
    disk_reserve_bytes: int = 256 << 20
    """Space kept for splitting, leases and settles: sends are refused below it."""
    reserve_file_bytes: int = 160 << 20
    """The preallocated file that is given up when another program takes the last byte; an eighth
    of the file system where that is less; 0 for none."""
    staged_bytes_max: int = 16 << 30
    """Parts of open transactions, in the log only."""
    topics_max: int = 200_000
    """Topics: one to two kilobytes of memory each; a call that would create another is refused."""
    schedules_max: int = 1_000_000
    """Recurring schedules: some 150 bytes of memory each; a call that would create another is
    refused."""
    groups_max: int = 1_000
    """Groups of one topic: each message is checked for each of them."""
    metrics_topics_max: int = 200
    """Topics with their own metrics; the others are summed, so that a scrape stays below 1 MB."""
    connections_max: int = 20_000
    """Open connections of clients, with those of Redis clients; at most half of the descriptors."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for limit in fields(self):
            least = 1 if limit.name == "connections_max" else 0
            # A request is one frame of the log.
            most = {"horizon_ms": HORIZON_MS_MAX, "request_bytes_max": PAYLOAD_BYTES_MAX - 1}.get(
                limit.name, NUMBER_MAX
            )
            value = getattr(self, limit.name)
            if not least <= value <= most:
                raise ValueError(
                    f"limits.{limit.name} is {value:,}; set it between {least} and {most:,}"
                )
