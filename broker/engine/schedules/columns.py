"""The numbers of all schedules as columns: 112 bytes each, in blocks that a checkpoint shares.

A schedule has a slot, which is free again once it is dropped. A block is a matrix of int64 with a
line for each column. A checkpoint writes the blocks while they change: before a row changes, its
values are set aside (copy-on-write) and written instead. So the checkpoint is of one moment. Whole
blocks are not set aside, since a second of firings may change a row in each of them.

They are written to the file schedules/NUMBER.rows, which a checkpoint names: the blocks one after
another, the last one cut to the slots that have been used; the checkpoint has the crc32c of each. A
file is written once, block by block, and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.broker.engine.schedules.schedule import AHEAD_MS, PROGRESS
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import NEVER_MS, Int64Array
from delaylog.storage.work import IoJob

BLOCK_BITS: Final = 12
BLOCK_ROWS: Final = 1 << BLOCK_BITS
_INSIDE: Final = BLOCK_ROWS - 1
NONE: Final = -1
"""No free slot."""


class Column(IntEnum):
    """The lines of a block."""

    NUMBER = 0
    """Of the schedule; 0: the slot is free, and PLACE is the next free slot."""
    TOPIC = 1
    NAME = 2
    """The hash of topic and name, as a signed number."""
    PLACE = 3
    """Where the definition is; see definitions.py."""
    SIZE = 4
    """Bytes of the definition."""
    FLAGS = 5
    PROGRESS = 6
    """And the lines after it, in the order of `Progress`."""


WIDTH: Final = Column.PROGRESS + len(PROGRESS)
_NEXT: Final = Column.PROGRESS + PROGRESS.index("next_ms")
_DUE: Final = Column.PROGRESS + PROGRESS.index("due_ms")
_LAST: Final = Column.PROGRESS + PROGRESS.index("last_ms")
_BUFFERED: Final = Column.PROGRESS + PROGRESS.index("buffered_ms")
PAUSED: Final = 1
AHEAD: Final = 2
"""Its firings become messages ahead of their due times."""
RowTest: TypeAlias = Callable[[Int64Array], npt.NDArray[np.bool_]]
"""Which rows of a block pass."""


class Columns:
    """The rows of all schedules, by slot."""

    def __init__(self) -> None:
        self.blocks: list[Int64Array] = []
        self.top = 0
        """Slots below this have been used."""
        self.free = NONE
        """The slot that was freed last; each free slot names the one before it."""
        self.count = 0
        self.changes = 0
        """Rises with each change."""
        self._before: dict[int, list[tuple[int | Int64Array, Int64Array]]] = {}
        """(rows, values) before each change, for blocks that a checkpoint has yet to write."""

    # ------------------------------------------------------------------ one row

    def row(self, slot: int) -> list[int]:
        """All numbers of a slot."""
        found: list[int] = self.blocks[slot >> BLOCK_BITS][:, slot & _INSIDE].tolist()
        return found

    def number_at(self, slot: int) -> int:
        """The number of the schedule in a slot; 0: in none, or there is no such slot."""
        if not 0 <= slot < self.top:
            return 0
        return int(self.blocks[slot >> BLOCK_BITS][Column.NUMBER, slot & _INSIDE])

    def set(self, slot: int, first: int, values: Sequence[int]) -> None:
        """Change the columns of a slot from `first` on."""
        block = self._changing(slot >> BLOCK_BITS, slot & _INSIDE)
        block[first : first + len(values), slot & _INSIDE] = values

    @property
    def next_slot(self) -> int:
        """The slot of the next schedule that is added."""
        return self.top if self.free == NONE else self.free

    def add(self, slot: int, values: Sequence[int]) -> None:
        """Fill `next_slot`."""
        assert slot == self.next_slot, "frames add schedules in the order in which it was decided"
        if slot == self.top:
            self.top += 1
            if slot >> BLOCK_BITS == len(self.blocks):
                self.blocks.append(np.zeros((WIDTH, BLOCK_ROWS), np.int64))
        else:
            self.free = self.row(slot)[Column.PLACE]
        self.set(slot, 0, values)
        self.count += 1

    def remove(self, slots: Int64Array) -> None:
        """Free these slots."""
        if len(slots) == 0:
            return
        chain = np.concatenate([[self.free], slots[:-1]])
        for at, part in _by_block(slots):
            inside = slots[part] & _INSIDE
            block = self._changing(at, inside)
            block[:, inside] = 0
            block[Column.PLACE, inside] = chain[part]
        self.free = int(slots[-1])
        self.count -= len(slots)

    def _changing(self, at: int, inside: int | Int64Array) -> Int64Array:
        """A block of which these rows are about to change."""
        self.changes += 1
        before = self._before.get(at)
        if before is not None:
            before.append((inside, self.blocks[at][:, inside].copy()))
        return self.blocks[at]

    # ------------------------------------------------------------------ whole columns

    def column(self, column: int, slots: Int64Array) -> Int64Array:
        """Values of one column."""
        out = np.zeros(len(slots), np.int64)
        for at, part in _by_block(slots):
            out[part] = self.blocks[at][column, slots[part] & _INSIDE]
        return out

    def ahead_of(self, after_ms: int) -> Int64Array:
        """Slots whose newest instant is after a time, and became a message ahead of it."""
        return self.where(
            lambda block: (block[_LAST] > after_ms) & (block[Column.FLAGS] & AHEAD != 0)
        )

    def next_firings(self, slots: Int64Array) -> Int64Array:
        """Due times of the next firings; NEVER_MS where a schedule is paused or has ended."""
        due = self.column(_DUE, slots)
        stands = (self.column(Column.FLAGS, slots) & PAUSED) != 0
        stands |= self.column(_NEXT, slots) == 0
        out: Int64Array = np.where(stands, NEVER_MS, due)
        return out

    def used(self, first: int = 0) -> Iterator[tuple[int, Int64Array]]:
        """(first slot, block) of each block, cut to the slots that have been used, from the block
        of slot `first` on."""
        for at in range(first >> BLOCK_BITS, len(self.blocks)):
            start = at << BLOCK_BITS
            yield start, self.blocks[at][:, : min(self.top - start, BLOCK_ROWS)]

    def slots_of(self, topic: int) -> Int64Array:
        """The slots of a topic's schedules, in rising order."""
        return self.where(lambda block: block[Column.TOPIC] == topic)

    def where(self, wanted: RowTest) -> Int64Array:
        """Slots in use whose rows pass a test, in rising order."""
        found = [
            start + np.flatnonzero((block[Column.NUMBER] != 0) & wanted(block))
            for start, block in self.used()
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    # ------------------------------------------------------------------ checkpoints

    def load(self, block: Int64Array) -> None:
        """Append a block of a checkpoint, which may be cut."""
        self.blocks.append(np.zeros((WIDTH, BLOCK_ROWS), np.int64))
        self.blocks[-1][:, : block.shape[1]] = block
        self.top += block.shape[1]
        self.count += int(np.count_nonzero(block[Column.NUMBER]))

    def share(self) -> int:
        """Keep the rows as they are now, for `shared`; returns the number of slots."""
        self._before = {at: [] for at in range(len(self.blocks))}
        return self.top

    def shared(self, at: int, slots: int) -> Int64Array:
        """A block as it was when it was shared, cut to the `slots` of then. Any thread."""
        width = min(slots - (at << BLOCK_BITS), BLOCK_ROWS)
        # In this order: what changes during the copy is set aside before it changes.
        out = self.blocks[at].copy()
        for inside, values in reversed(list(self._before[at])):
            out[:, inside] = values
        return np.ascontiguousarray(out[:, :width])

    def release(self, at: int) -> None:
        """A checkpoint has written this block."""
        self._before.pop(at, None)

    def release_all(self) -> None:
        """A checkpoint is complete, or was abandoned."""
        self._before.clear()


def wakes_of(block: Int64Array) -> Int64Array:
    """When the next instant of each row is to be decided; NEVER_MS if none comes."""
    flags = block[Column.FLAGS]
    waits = (block[_NEXT] != 0) & (flags & PAUSED == 0)
    wakes = np.maximum(block[_DUE] - np.where(flags & AHEAD, AHEAD_MS, 0), 0)
    return np.where(waits, wakes, NEVER_MS)


def buffered_in(block: Int64Array) -> npt.NDArray[np.bool_]:
    """Which rows have a firing that waits for a message."""
    found: npt.NDArray[np.bool_] = block[_BUFFERED] != 0
    return found


def _by_block(slots: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """(block, indexes of the slots in it), for slots in any order."""
    ats = slots >> BLOCK_BITS
    order = np.argsort(ats, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(ats[order])) + 1):
        if len(part):
            yield int(ats[part[0]]), part


# ---------------------------------------------------------------------- the file of all columns

_ROW_BYTES: Final = WIDTH * 8
_BLOCK_BYTES: Final = BLOCK_ROWS * _ROW_BYTES


class RowsFile(NamedTuple):
    """What a checkpoint says about a file."""

    number: int
    """0: there is no file, since no slot was ever used."""
    slots: int
    crcs: Sequence[int]

    @property
    def name(self) -> str:
        """Its name in the folder of schedules."""
        return f"{self.number}.rows"

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.slots * _ROW_BYTES


NO_ROWS: Final = RowsFile(0, 0, ())


def write_rows(
    fs: FileSystem, folder: str, number: int, columns: Columns, slots: int
) -> Generator[IoJob | float | None, None, RowsFile]:
    """Write the slots that a checkpoint shares, durably, as a `Work` that returns the file."""
    file: list[File] = []
    crcs: list[int] = []

    def begin() -> None:
        file.append(fs.open(f"{folder}/{number}.rows", create=True))

    def write() -> None:
        at = len(crcs)
        raw = columns.shared(at, slots).data
        file[0].pwritev([raw], at * _BLOCK_BYTES)
        crcs.append(crc32c(raw))

    def finish() -> None:
        # An attempt that no checkpoint names may have left more.
        file[0].truncate(slots * _ROW_BYTES)
        file[0].fdatasync()
        fs.sync_folder(folder)

    try:
        yield begin
        for at in range(-(-slots // BLOCK_ROWS)):
            yield write
            columns.release(at)
        yield finish
    finally:
        if file:
            file[0].close()
    return RowsFile(number, slots, crcs)


def read_rows(fs: FileSystem, folder: str, saved: RowsFile) -> Iterator[Int64Array]:
    """The blocks of a file, each (WIDTH, slots). Raises CorruptionError."""
    if not saved.number:
        return
    path = f"{folder}/{saved.name}"
    if not fs.exists(path):
        raise CorruptionError("rows of schedules are missing", path=path, position=0)
    with closing(fs.open(path)) as file:
        for at, crc in enumerate(saved.crcs):
            start = at * _BLOCK_BYTES
            size = min(saved.size - start, _BLOCK_BYTES)
            raw = file.pread(size, start)
            if len(raw) != size or crc32c(raw) != crc:
                raise CorruptionError("damaged rows of schedules", path=path, position=start)
            yield np.frombuffer(raw, "<i8").reshape(WIDTH, -1)
