"""The table: frames, a checkpoint that is packed while it changes, and the order of due times."""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.schedules.schedule import Progress, Rules, Schedule, Spec
from delaylog.broker.engine.schedules.table import ScheduleTable, moved_rows
from delaylog.broker.schedules.timing import Timing


def row(number: int, name: str, due_ms: int, topic: int = 1, note: str | None = None) -> bytes:
    """A packed schedule, which is decided at its due time."""
    spec = Spec(Timing(cron="* * * * *"), Rules(overlap="skip"), b"")
    one = Schedule(number, topic, name, spec, note)
    one.progress = Progress(due_ms, due_ms)
    return one.pack()


def table_of(*dues: int) -> ScheduleTable:
    """A leader's table of schedules numbered from 1."""
    table = ScheduleTable()
    table.lead()
    for number, due_ms in enumerate(dues, 1):
        table.apply({"put": row(number, f"s{number}", due_ms), "by": "2026a"})
    return table


def popped(table: ScheduleTable, now_ms: int) -> list[int]:
    """The numbers that are due, each popped once."""
    out = []
    while (one := table.pop_due(now_ms, {})) is not None:
        out.append(one.number)
    return out


def test_due_times_come_in_order() -> None:
    """Those that are due, and no others; a schedule that ended has none."""
    table = table_of(30, 10, 20, 0)
    assert table.next_wake_ms() == 10
    assert popped(table, 20) == [2, 3]
    assert popped(table, 29) == []
    assert popped(table, 30) == [1]
    assert table.next_wake_ms() is None


def test_stale_due_times_are_passed_over() -> None:
    """Of a schedule that was moved, paused or dropped, or that a slice has moved already."""
    table = table_of(10, 10, 10, 10)
    table.apply({"moved": moved_rows({1: Progress(50, 50)}), "by": "2026a"})
    table.apply({"put": row(2, "s2", 10, note="paused"), "by": "2026a"})
    table.apply({"drop": 3})
    assert table.pop_due(10, {4: Progress(40, 40)}) is None


def test_a_start_finds_the_same_order() -> None:
    """From the state alone; a buffered firing is looked at first, and a follower has no order."""
    table = table_of(30, 10, 20)
    waiting = Progress(40, 40, buffered_ms=5)
    table.apply({"moved": moved_rows({3: waiting}), "by": "2026a"})
    table.follow()
    assert table.next_wake_ms() is None
    table.lead()
    assert popped(table, 30) == [3, 2, 1]


def test_a_message_that_ended_wakes_its_schedule_once() -> None:
    """By its origin."""
    table = table_of(100)
    table.awaited[77] = 1
    table.ended([5, 6])
    assert popped(table, 50) == []
    table.ended([5, 77])
    assert popped(table, 50) == [1]
    table.ended([77])
    assert popped(table, 50) == []


def test_the_release_of_the_zones() -> None:
    """The first writer's; an older writer is noted until all was computed anew."""
    table = table_of(10)
    assert (table.zones, table.mixed) == ("2026a", False)
    table.apply({"moved": moved_rows({1: Progress(5, 5)}), "by": "2025z"})
    assert (table.zones, table.mixed) == ("2026a", True)
    table.apply({"zones": "2026b"})
    assert (table.zones, table.mixed) == ("2026b", False)


def test_a_checkpoint_is_of_one_moment() -> None:
    """It is packed in slices while schedules move, come and go."""
    table = table_of(10, 20, 30)
    before = [one.pack() for one in table.by_number.values()]
    packed, rest = table.snapshot()
    table.apply({"moved": moved_rows({2: Progress(99, 99)}), "by": "2026a"})
    table.apply({"drop": 1})
    table.apply({"put": row(4, "new", 40), "by": "2026a"})
    table.apply({"put": row(3, "s3", 31), "by": "2026a"})
    for _ in table.entries.work():
        pass
    assert b"".join(packed.blocks) == b"".join(before)
    other = ScheduleTable()
    other.restore(packed, rest)
    assert [one.pack() for one in other.by_number.values()] == before
    assert (other.next_number, other.zones, other.mixed) == (4, "2026a", False)


def test_a_topic_takes_its_schedules_along() -> None:
    """Those of other topics stay."""
    table = table_of(10, 20)
    table.apply({"put": row(3, "s1", 30, topic=2), "by": "2026a"})
    table.drop_topic(1)
    assert list(table.by_number) == [3]
    assert table.find(1, "s1") is None
    assert table.find(2, "s1") is table.by_number[3]
    assert msgpack.unpackb(table.by_number[3].pack())[1] == 2
