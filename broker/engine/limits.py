"""One table of limits: what an operator may set, and what happens beyond each.

The texts are those of docs/LIMITS.md. Bounds that nobody has a reason to change are constants
beside the code that uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Final

from delaylog.contract.members import ms_in_words
from delaylog.storage.layout import DUE_MS_MAX
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX

HORIZON_MS_MAX: Final = 50 * 366 * 86_400_000
"""Upper bound of `horizon_ms`: due times end in 2089 (`DUE_MS_MAX`), see `Limits.clock_fault`."""
NUMBER_MAX: Final = 1 << 53
"""Upper bound of every limit: JSON numbers are exact up to here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one node; configuration may change them."""

    body_bytes_max: int = 4 << 20
    """Body of a message; beyond it 413."""
    request_bytes_max: int = 64 << 20
    """Body of a request, below 256 MiB; beyond it 413."""
    bodies_bytes_max: int = 256 << 20
    """Bodies of all requests that are being read or answered; beyond it 503. A body takes twice
    its size while its parts are joined."""
    bulk_rows_max: int = 100_000
    """Rows of a bulk or Arrow body; beyond it 400."""
    horizon_ms: int = 10 * 366 * 86_400_000
    """How far ahead a message may be due, at most 50 years; beyond it 400."""
    receive_max: int = 10_000
    """Messages of one receive; beyond it 400."""
    leased_max: int = 1_000_000
    """Messages under lease in a group; beyond it a receive gets nothing until some are settled."""
    disk_reserve_bytes: int = 256 << 20
    """Free space below which sends get 507, and all else goes on."""
    reserve_file_bytes: int = 160 << 20
    """The preallocated file that is used on a full disk: at most an eighth of its file system,
    0 for none (the default of an embedded broker)."""
    staged_bytes_max: int = 16 << 30
    """Staged parts of open transactions; beyond it 429. If open transactions keep more than four
    times as much of the log, the one with the oldest parts expires."""
    topics_max: int = 200_000
    """Topics; a call that would create another gets 429."""
    schedules_max: int = 1_000_000
    """Recurring schedules; another gets 429."""
    groups_max: int = 1_000
    """Groups of a topic; another gets 429."""
    metrics_topics_max: int = 200
    """Topics with their own metrics, and four times as many groups; others are `topic="other"`."""
    connections_max: int = 20_000
    """HTTP and Redis clients, at most half of the descriptors; beyond it 503, then closed."""

    def clock_fault(self, now_ms: int) -> str | None:
        """Why a clock is too late; None if it is not.

        By a later clock a due time within the horizon could pass `DUE_MS_MAX`.
        """
        last_ms = DUE_MS_MAX - self.horizon_ms
        if now_ms <= last_ms:
            return None
        shown, last = (datetime.fromtimestamp(ms // 1_000, UTC).date() for ms in (now_ms, last_ms))
        return (
            f"the clock shows {shown}, and must not pass {last} with a horizon of "
            f"{ms_in_words(self.horizon_ms)}: set it, or lower horizon_ms"
        )

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
