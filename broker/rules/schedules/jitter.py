"""Stable jitter: how late a firing is on purpose, so that equal schedules do not fire together.

The rule: a firing is due in [instant, instant + jitter_ms], and before the next instant. So firings
keep the order of their instants, and due times rise strictly.
"""

from __future__ import annotations

from hashlib import blake2b


def due_ms(schedule_id: bytes, instant_ms: int, next_ms: int | None, jitter_ms: int) -> int:
    """The due time of a firing; the same for the same arguments on every node.

    `schedule_id` identifies the schedule in the broker. `next_ms` is the instant after this one.
    """
    span = jitter_ms if next_ms is None else min(jitter_ms, next_ms - instant_ms - 1)
    if span <= 0:
        return instant_ms
    key = schedule_id + instant_ms.to_bytes(8, "little")
    share = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    return instant_ms + (share * (span + 1) >> 64)
