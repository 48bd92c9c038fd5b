"""The timing wheel: it works on integers only, without files, messages or a clock."""

from delaylog.wheel.delay_queue import DelayQueue
from delaylog.wheel.second_slot import Entries, join_entries, no_entries, sort_entries
from delaylog.wheel.timing_wheel import TimingWheel, WheelTurn

__all__ = [
    "DelayQueue",
    "Entries",
    "TimingWheel",
    "WheelTurn",
    "join_entries",
    "no_entries",
    "sort_entries",
]
