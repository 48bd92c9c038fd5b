"""A table of schedules over a disk in memory and a log of its own frames, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from delaylog.broker.engine.schedules.schedule import Progress, Rules, Schedule, Spec
from delaylog.broker.engine.schedules.table import ScheduleTable, moved_rows
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.storage.layout import FrameHeader, FrameKind
from delaylog.storage.log.frames import Frame
from delaylog.storage.runs.id_hash import IdHash
from delaylog.storage.work import Work
from tests.storage.fake_disk import FakeDisk

TIMING = Timing(cron="* * * * *")


def numbered(serial: int, slot: int) -> int:
    """The number of a schedule."""
    return serial << 28 | slot


def run(work: Work) -> None:
    """Run work to its end."""
    for step in work:
        if callable(step):
            step()


def a_schedule(number: int, name: str, due_ms: int, *, topic: int = 1, **more: Any) -> Schedule:
    """A schedule that is decided at its due time."""
    rules = Rules(overlap=more.get("overlap", "skip"))
    one = Schedule(
        number, topic, name, Spec(TIMING, rules, more.get("body", b"")), more.get("note")
    )
    one.progress = Progress(due_ms, due_ms)
    return one


@dataclass
class Rig:
    """A table, with the frames that it was given."""

    disk: Any = field(default_factory=FakeDisk)
    frames: dict[int, bytes] = field(default_factory=dict)
    by: str = "2026a"
    folder: str = "data"
    log_from: int = 0
    """The log below this position was dropped."""

    def __post_init__(self) -> None:
        self.disk.mkdir(self.folder)
        self.table = self.empty()

    def empty(self) -> ScheduleTable:
        """Another table of the same folder and log."""
        return ScheduleTable(self.disk, self.folder, self._frame_at, IdHash(b"k").one)

    def _frame_at(self, position: int) -> Frame:
        assert position >= self.log_from, "the log was dropped"
        payload = self.frames[position]
        header = FrameHeader(*[0] * len(FrameHeader._fields))._replace(
            kind=FrameKind.SCHEDULE, position=position, payload_size=len(payload)
        )
        return Frame(header, payload)

    def apply(self, members: dict[str, Any]) -> None:
        """Append a frame and apply it."""
        position = len(self.frames) * 100
        self.frames[position] = msgpack.packb(members)
        self.table.apply(members, position)

    def put(self, one: Schedule) -> None:
        self.apply({"put": one.pack(), "by": self.by})

    def add(self, name: str, due_ms: int, **more: Any) -> int:
        """Put a new schedule; returns its number."""
        number = self.table.next_number
        self.put(a_schedule(number, name, due_ms, **more))
        return number

    def move(self, number: int, progress: Progress) -> None:
        self.apply({"moved": moved_rows({number: progress}), "by": self.by})

    def drop(self, number: int) -> None:
        self.apply({"drop": number})

    def contents(self, table: ScheduleTable | None = None) -> dict[int, bytes]:
        """What each schedule is, by number."""
        table = table or self.table
        found = {number: table.get(number) for number in table.numbers().tolist()}
        assert len(found) == len(table)
        return {number: one.pack() for number, one in found.items() if one is not None}

    def checkpoint(self, definitions: Callable[[Work], None] = run) -> dict[str, Any]:
        """What a checkpoint stores. `definitions` runs the part that stores definitions."""
        try:
            definitions(self.table.store_definitions())
            saved = self.table.snapshot(len(self.frames) * 100)
            run(self.table.store_rows(saved))
        finally:
            self.table.end_snapshot()
        return through_disk(saved)


def through_disk(saved: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint file has it."""
    found: dict[str, Any] = msgpack.unpackb(msgpack.packb(saved))
    return found
