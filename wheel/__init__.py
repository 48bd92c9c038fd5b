"""The timing wheel: it works on integers only, without files, messages or a clock."""

from delaylog.wheel.delay_queue import DelayQueue
from delaylog.wheel.second_slot import (
    FEW_ENTRIES_MAX,
    NO_ENTRIES,
    Entries,
    Entry,
    entries_of,
    join_entries,
    sort_entries,
)
from delaylog.wheel.timing_wheel import TimingWheel, WheelTurn

__all__ = [
    "FEW_ENTRIES_MAX",
    "NO_ENTRIES",
    "DelayQueue",
    "Entries",
    "Entry",
    "TimingWheel",
    "WheelTurn",
    "entries_of",
    "join_entries",
    "sort_entries",
]
