"""The table of schedules: part of the state of an engine, changed by SCHEDULE frames.

A SCHEDULE frame is a msgpack map with one of these members:

    put      a packed schedule, which replaces the one of its number
    drop     the number of a schedule
    moved    int64 columns: number and `Progress` of schedules that fired or were recomputed
    zones    the tzdata release by which every next instant was computed

`put` and `moved` have the writer's release too, as `by`. A number is serial << 28 | slot, so it
names the place of its row in the columns. Memory has the columns and an index of names; a
`Schedule` is made when one is asked for, from its definition on disk and its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.schedules.columns import (
    AHEAD,
    NO_ROWS,
    PAUSED,
    Column,
    Columns,
    RowsFile,
    read_rows,
    write_rows,
)
from delaylog.broker.engine.schedules.definitions import (
    DefinitionCache,
    Definitions,
    Extent,
    begin_folder,
)
from delaylog.broker.engine.schedules.schedule import PROGRESS, Progress, Schedule
from delaylog.broker.engine.schedules.wakes import AT_ONCE_MS, Wakes
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.layout import Int64Array
from delaylog.storage.log.frames import Frame
from delaylog.storage.runs.recent_ids import SLOTS_MIN, RecentIds
from delaylog.storage.work import Work

# From the hash of a topic and a name to a slot: the one index of schedules that is in memory.
#
# It takes 32 bytes for each schedule at most, and is made from the columns at a start. Hashes are
# keyed, so nobody can choose names that collide; two that do are told apart by their definitions.


class NameIndex:
    """hash -> slot."""

    def __init__(self) -> None:
        self._table = RecentIds()
        self._gone = 0
        """Entries that were forgotten, whose keys still take room."""

    def put(self, hashes: Int64Array, slots: Int64Array) -> None:
        """Enter slots."""
        # A table of ids has 0 for nothing.
        self._table.put(hashes.view(np.uint64), slots + 1)

    def find(self, hash_: int) -> int | None:
        """The slot of a hash."""
        found = int(self._table.get(np.array([hash_], np.int64).view(np.uint64))[0])
        return found - 1 if found else None

    def forget(self, hashes: Int64Array) -> None:
        """Remove entries."""
        self._table.put(hashes.view(np.uint64), np.zeros(len(hashes), np.int64))
        self._gone += len(hashes)
        if self._gone * 4 > self._table.slots:
            keys, refs = self._table.columns()
            slots = SLOTS_MIN
            while len(keys) * 2 > slots:
                slots *= 2
            self._table, self._gone = RecentIds(slots), 0
            self._table.put(keys, refs)


# Messages for which buffered firings wait: a hint of a leader, which no file stores.
#
# When one of them ends, its schedule is looked at. A schedule that is dropped is forgotten, so the
# hint does not grow by schedules that come and go while their messages live.


class AwaitedMessages:
    """Which message each schedule with a buffered firing waits for."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Number of the schedule, by origin of the message."""
        self._origins: dict[int, list[int]] = {}
        """Origins, by number of the schedule: its message has one in each group."""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, origin: int, number: int) -> None:
        """Enter a message that a schedule waits for."""
        if self._numbers.get(origin) != number:
            self._numbers[origin] = number
            self._origins.setdefault(number, []).append(origin)

    def ended(self, origins: Iterable[int]) -> set[int]:
        """The schedules that waited for these messages, which are forgotten.

        Who looks at a schedule enters again what it still waits for.
        """
        numbers = {self._numbers[origin] for origin in self._numbers.keys() & set(origins)}
        for number in numbers:
            self.forget(number)
        return numbers

    def forget(self, number: int) -> None:
        """Forget what a schedule waits for."""
        for origin in self._origins.pop(number, ()):
            self._numbers.pop(origin, None)

    def schedules(self) -> list[int]:
        """The numbers of all schedules that wait."""
        return list(self._origins)

    def clear(self) -> None:
        """Forget everything: another leadership begins or ends."""
        self._numbers.clear()
        self._origins.clear()


FOLDER: Final = "schedules"
"""The folder of the files of schedules in a data folder."""
SLOT_BITS: Final = 28
_SLOT_MASK: Final = (1 << SLOT_BITS) - 1
_WIDTH: Final = 1 + len(PROGRESS)


class ScheduleTable:
    """All schedules, by number and by topic and name."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        frame_at: Callable[[int], Frame],
        hash_of: Callable[[bytes], int],
    ) -> None:
        """`folder` is the data folder; `frame_at` reads a frame of its log, `hash_of` hashes
        names."""
        self._fs = fs
        self._folder = f"{folder}/{FOLDER}"
        self.hash_of = hash_of
        """Changes before the first schedule only."""
        self._columns = Columns()
        self._names = NameIndex()
        self._topics: Counter[int] = Counter()
        """Number of schedules of each topic that has some."""
        self._definitions = Definitions(fs, self._folder, frame_at, self._columns)
        self._cache = DefinitionCache()
        self.wakes = Wakes(self._columns)
        self._serial = 1
        self._rows = NO_ROWS
        """The file that the newest checkpoint names."""
        self._rows_changes = 0
        """The changes of the columns that it has."""
        self.zones = ""
        """The tzdata release of the next instants; "" before the first schedule."""
        self.mixed = False
        """Whether a node with an older release has computed some of them since."""
        self.awaited = AwaitedMessages()

    def __len__(self) -> int:
        return self._columns.count

    # ------------------------------------------------------------------ look-ups

    def find(self, topic: int, name: str) -> Schedule | None:
        """A schedule of a topic by name. Raises CorruptionError."""
        slot = self._names.find(self._hash(topic, name))
        one = None if slot is None else self.get(self._columns.number_at(slot))
        return one if one is not None and (one.topic, one.name) == (topic, name) else None

    def get(self, number: int) -> Schedule | None:
        """A schedule by number. Raises CorruptionError."""
        slot = number & _SLOT_MASK
        if not number or self._columns.number_at(slot) != number:
            return None
        row = self._columns.row(slot)
        known = self._cache.get(number)
        if known is None:
            place, size = row[Column.PLACE], row[Column.SIZE]
            known = Schedule.unpack(self._definitions.read(number, place, size))
            self._cache.put(known, size)
        return known.at(Progress(*row[Column.PROGRESS :]))

    def collides(self, topic: int, name: str) -> bool:
        """Whether another name has the hash of this one, which is as likely as 1 in 2**64."""
        taken = self._names.find(self._hash(topic, name)) is not None
        return taken and self.find(topic, name) is None

    def has_some(self, topic: int) -> bool:
        """Whether a topic has schedules."""
        return topic in self._topics

    def of_topic(self, topic: int, after: int = 0) -> Iterator[Schedule]:
        """A topic's schedules by slot, from the first behind that of the number `after` on."""
        first = (after & _SLOT_MASK) + 1 if after else 0
        if not self.has_some(topic):
            return
        for start, block in self._columns.used(first):
            found = np.flatnonzero(block[Column.TOPIC] == topic)
            for number in block[Column.NUMBER, found[start + found >= first]].tolist():
                one = self.get(number)
                if one is not None:
                    yield one

    def numbers(self) -> Int64Array:
        """The numbers of all schedules, by slot."""
        slots = self._columns.where(lambda block: block[Column.TOPIC] != 0)
        return self._columns.column(Column.NUMBER, slots)

    def sent_ahead(self, after_ms: int) -> list[int]:
        """Numbers of the schedules whose newest instants, sent ahead, are after a time."""
        slots = self._columns.ahead_of(after_ms)
        found: list[int] = self._columns.column(Column.NUMBER, slots).tolist()
        return found

    def soonest(self, limit: int, topics: Int64Array | None = None) -> list[int]:
        """Numbers of the schedules that fire next, in this order; those that do not fire come last.

        `topics`: only schedules of these topics.
        """
        columns = self._columns
        slots = columns.where(lambda block: block[Column.TOPIC] != 0)
        if topics is not None:
            slots = slots[np.isin(columns.column(Column.TOPIC, slots), topics)]
        due = columns.next_firings(slots)
        if len(slots) > limit:
            first = np.argpartition(due, limit - 1)[:limit]
            slots, due = slots[first], due[first]
        found: list[int] = columns.column(Column.NUMBER, slots[np.argsort(due)]).tolist()
        return found

    @property
    def next_number(self) -> int:
        """The number of the next schedule that is put."""
        slot = self._columns.next_slot
        assert slot <= _SLOT_MASK, "memory holds fewer schedules than a number can name"
        return self._serial << SLOT_BITS | slot

    def _hash(self, topic: int, name: str) -> int:
        hash_ = self.hash_of(f"{topic}/{name}".encode())
        return hash_ - (1 << 64) if hash_ >> 63 else hash_

    # ------------------------------------------------------------------ frames

    def apply(self, members: Mapping[str, Any], position: int) -> None:
        """Apply the SCHEDULE frame at a position of the log."""
        by = members.get("by")
        if by is not None:
            self.zones = self.zones or by
            self.mixed |= by < self.zones
        if "put" in members:
            self._put(members["put"], position)
        elif "drop" in members:
            if self._columns.number_at(members["drop"] & _SLOT_MASK) == members["drop"]:
                self._forget(np.array([members["drop"] & _SLOT_MASK]))
        elif "moved" in members:
            for number, progress in rows_moved(members):
                if self._columns.number_at(number & _SLOT_MASK) == number:
                    self._columns.set(number & _SLOT_MASK, Column.PROGRESS, progress)
        elif "zones" in members:
            self.zones, self.mixed = members["zones"], False

    def drop_topic(self, topic: int) -> None:
        """A topic was dropped, with all of its schedules."""
        if self.has_some(topic):
            self._forget(self._columns.slots_of(topic))

    def _put(self, packed: bytes, position: int) -> None:
        one = Schedule.unpack(packed)
        slot, hash_ = one.number & _SLOT_MASK, self._hash(one.topic, one.name)
        flags = (PAUSED if one.paused else 0) | (AHEAD if one.spec.rules.ahead_ms else 0)
        said = [one.number, one.topic, hash_, -1 - position, len(packed), flags]
        if self._columns.number_at(slot) == one.number:
            self._columns.set(slot, 0, [*said, *one.progress.values()])
        else:
            self._columns.add(slot, [*said, *one.progress.values()])
            self._names.put(np.array([hash_]), np.array([slot]))
            self._topics[one.topic] += 1
            self._serial = max(self._serial, (one.number >> SLOT_BITS) + 1)
        self._cache.put(one, len(packed))
        self.wake(one)

    def _forget(self, slots: Int64Array) -> None:
        columns = self._columns
        for number in columns.column(Column.NUMBER, slots).tolist():
            self._cache.drop(number)
            self.awaited.forget(number)
        self._names.forget(columns.column(Column.NAME, slots))
        self._topics.subtract(columns.column(Column.TOPIC, slots).tolist())
        self._topics = +self._topics
        columns.remove(slots)

    # ------------------------------------------------------------------ checkpoints

    def store_definitions(self) -> Work:
        """Before a checkpoint: have definitions on disk, so that it needs less of the log."""
        yield from self._definitions.store_work()

    def snapshot(self, position: int) -> dict[str, Any]:
        """What a checkpoint at `position`, the present end of the log, stores.

        `store_rows` adds the rows of this moment.
        """
        columns, definitions = self._columns, self._definitions
        slots = columns.share()
        return {
            "serial": self._serial,
            "zones": self.zones,
            "mixed": self.mixed,
            "free": columns.free,
            "changes": columns.changes,
            "slots": slots,
            "log_from": definitions.log_from(position),
            "definitions": list(definitions.newest),
        }

    def store_rows(self, saved: dict[str, Any]) -> Work:
        """Write the rows of the last snapshot, unless nothing has changed since the one before."""
        changes, slots = saved.pop("changes"), saved.pop("slots")
        rows = self._rows
        if changes != self._rows_changes:
            number = self._definitions.take_file()
            yield lambda: begin_folder(self._fs, self._folder)
            rows = yield from write_rows(self._fs, self._folder, number, self._columns, slots)
        saved["rows"] = [rows.number, rows.slots, list(rows.crcs)]
        saved["next_file"] = self._definitions.next_file
        self._rows, self._rows_changes = rows, changes

    def end_snapshot(self) -> None:
        """The last snapshot is complete, or was abandoned."""
        self._columns.release_all()

    def collect(self, kept: set[str]) -> Work:
        """Remove files that neither the table nor a kept checkpoint needs; see `named_files`."""
        if not self._fs.exists(self._folder):
            return
        needed = {self._rows.name, self._definitions.newest.name} | kept
        self._definitions.close_others()

        def remove() -> None:
            for name in self._fs.listdir(self._folder):
                if name not in needed:
                    self._fs.unlink(f"{self._folder}/{name}")

        yield remove

    def log_from(self, position: int) -> int:
        """The first position of the log that schedules need; `position` if they need none."""
        return self._definitions.log_from(position)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Fill an empty table from a checkpoint. Raises CorruptionError."""
        columns, self._rows = self._columns, RowsFile(*saved["rows"])
        self._serial, columns.free = saved["serial"], saved["free"]
        self.zones, self.mixed = saved["zones"], saved["mixed"]
        self._definitions.restore(Extent(*saved["definitions"]), saved["next_file"])
        for block in read_rows(self._fs, self._folder, self._rows):
            used = np.flatnonzero(block[Column.NUMBER])
            self._names.put(block[Column.NAME, used], columns.top + used)
            self._topics.update(block[Column.TOPIC, used].tolist())
            columns.load(block)
        self._rows_changes = columns.changes

    def close(self) -> None:
        """Close every file."""
        self._definitions.close()

    # ------------------------------------------------------------------ due times, on a leader

    def lead(self) -> None:
        """Put due times in order. Firings that wait for a message are looked at first."""
        self.awaited.clear()
        self.wakes.lead()

    def follow(self) -> None:
        """Forget the order of due times: another node leads."""
        self.wakes.follow()
        self.awaited.clear()

    def wake(self, one: Schedule, progress: Progress | None = None) -> None:
        """Enter the due time of a schedule. `progress` = what a frame will store soon."""
        progress = progress or one.progress
        if progress.next_ms and not one.paused:
            self.wakes.enter(one.number & _SLOT_MASK, one.wake_ms(progress))

    def ended(self, origins: Sequence[int]) -> None:
        """Messages that buffered firings wait for may have ended: look at those at once."""
        for number in self.awaited.ended(origins):
            self.wakes.enter(number & _SLOT_MASK, AT_ONCE_MS)

    def purged(self, topic: int) -> None:
        """Messages of a topic have ended at once."""
        for number in self.awaited.schedules():
            if self._columns.row(number & _SLOT_MASK)[Column.TOPIC] == topic:
                self.awaited.forget(number)
                self.wakes.enter(number & _SLOT_MASK, AT_ONCE_MS)

    def look_ahead(self, now_ms: int) -> None:
        """Before a slice of firings, while no progress is to be applied: order what comes next."""
        self.wakes.look_ahead(now_ms)

    def pop_due(self, now_ms: int, moved: Mapping[int, Progress]) -> Schedule | None:
        """The schedule that is due first, None if none is. `moved` = progress not applied yet.

        Raises CorruptionError.
        """
        while (entry := self.wakes.pop(now_ms)) is not None:
            slot, wake_ms = entry
            one = self.get(self._columns.number_at(slot))
            if one is None or one.paused:
                continue
            progress = moved.get(one.number, one.progress)
            if wake_ms == AT_ONCE_MS and progress.buffered_ms:
                return one
            if progress.next_ms and one.wake_ms(progress) == wake_ms:
                return one
        return None

    def in_order(self) -> tuple[Int64Array, Int64Array]:
        """(times, numbers) of all schedules that wait for an instant, by time."""
        times, slots = self.wakes.all_in_order()
        return times, self._columns.column(Column.NUMBER, slots)


def named_files(saved: Mapping[str, Any]) -> dict[str, int]:
    """The files in the folder that the table of a checkpoint needs, and how much of each."""
    rows, definitions = RowsFile(*saved["rows"]), Extent(*saved["definitions"])
    found = {rows.name: rows.size} if rows.number else {}
    return found | ({definitions.name: definitions.end} if definitions.file else {})


def moved_rows(moved: Mapping[int, Progress]) -> bytes:
    """The columns of a frame."""
    rows = [[number, *progress.values()] for number, progress in moved.items()]
    return np.array(rows, "<i8").tobytes()


def rows_moved(members: Mapping[str, Any]) -> Iterator[tuple[int, list[int]]]:
    """(number, values of the progress) of each schedule that a frame moves."""
    for number, *values in np.frombuffer(members["moved"], "<i8").reshape(-1, _WIDTH).tolist():
        yield number, values
