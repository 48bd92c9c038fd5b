"""The bytes of a stored schedule, which are part of the log's format, and shared values."""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.schedules.schedule import PROGRESS, Progress, Rules, Schedule, Spec
from delaylog.broker.rules.schedules.timing import Timing


def example() -> Schedule:
    """A schedule with a value in every place."""
    timing = Timing(cron="0 9 * * *", zone="Europe/Berlin")
    one = Schedule(7, 3, "daily", Spec(timing, Rules(), b"m"), "why")
    one.progress = Progress(1, 2, 3, 4, 5, 6, 7, 8)
    return one


def test_a_row_has_these_bytes() -> None:
    """Packed as msgpack packs the list, so that every reader can read it."""
    row = [
        *(7, 3, "daily"),
        {"cron": "0 9 * * *", "zone": "Europe/Berlin", "gap": "next", "fold": "first"},
        {
            "jitter_ms": 0,
            "catch_up": "latest",
            "catch_up_window_ms": 86_400_000,
            "overlap": "allow",
        },
        *(b"m", "why", [1, 2, 3, 4, 5, 6, 7, 8]),
    ]
    assert example().pack() == msgpack.packb(row)
    assert (
        *("next_ms", "due_ms", "n", "last_ms", "wall_s"),
        *("fired_ms", "buffered_ms", "skipped"),
    ) == PROGRESS


def test_a_row_is_read_back_with_shared_values() -> None:
    """Equal timings and rules are one object, since there may be a million of them."""
    one, other = (Schedule.unpack(example().pack()) for _ in range(2))
    assert one.pack() == example().pack()
    assert one.spec == example().spec
    assert one.spec.timing is other.spec.timing
    assert one.spec.rules is other.spec.rules
    assert one.progress is not other.progress
