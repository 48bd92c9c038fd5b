"""The files of one due hour: delay log, delay index, second index, extents and state columns.

Rows are appended in flushes: prepared on any thread (`prepare`), written on any thread
(`write_flush`), then made visible (`commit_flush`); until the last step readers see the old count.
A `HourReader` reads rows and records.

Recovery at a restart checks the rows of the checkpoint and cuts later ones: only rows that a
checkpoint counted are known to be intact, and replay restores later rows. Before these are cut,
they are used to rewind the second index if extents verify them.

`ChainReader` reads chains of the hour's seconds in jobs, so that a cold disk delays only a worker
thread. The jobs of one reader run one after the other, on any thread, and copy the bytes that they
read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import proxy

import numpy as np
from crc32c import crc32c

from delaylog.storage.columns import concat_rows, distinct, some
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.hours.extents import (
    ExtentChecks,
    extents_upto,
    make_extent,
    read_extents,
    whole_extent,
)
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.hour_rewrite import HourRewrite
from delaylog.storage.hours.open_hours import SECOND_INDEX, HourFiles, HourHeads, OpenHours
from delaylog.storage.hours.second_index import ChainUpdate, SecondIndex
from delaylog.storage.hours.state_column import PAGE_ROWS, PAGE_SIZE, StateColumn
from delaylog.storage.layout import (
    DEFAULT_GROUP,
    EXTENT,
    EXTENT_REWRITTEN,
    EXTENT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    TAG_COUNT,
    Int64Array,
    RowArray,
    group_of_name,
    state_name,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.work import IoJob, ReadJob, Work

# ------------------------------------------------------------------------ recovery at a restart

_EPOCHS_AHEAD_MAX: Final = 64
"""Number of epoch tags after that of a checkpoint which count as later; all others are earlier,
since tags wrap around. Each process takes a checkpoint within half a minute."""


@dataclass(frozen=True, slots=True)
class CutHour:
    """An hour's files after the cut."""

    log_size: int
    extent_count: int
    seconds: SecondIndex | None
    """The heads of the chains; None if their file was unusable, so that they must be rebuilt."""
    rewound: bool
    """Whether the heads differ from the file."""


def rows_are_missing(path: str, position: int, row_count: int) -> CorruptionError:
    """The error of a delay index that ends at byte `position`, before durable rows."""
    return CorruptionError(
        "rows are missing", path=path, position=position, detail=f"{row_count} rows were durable"
    )


def first_rows_are_before(open_file: Callable[[str], File], position: int, epoch: int) -> bool:
    """Whether frames below `position`, of epochs up to `epoch`, made the first rows.

    If the first extent is damaged, it is corrupt, or it was torn together with rows of a later
    epoch. The tag of row 1 tells which, so that corruption is never taken for a removal.
    """
    raw = open_file("extents").pread(EXTENT_SIZE, 0)
    if len(raw) == EXTENT_SIZE and whole_extent(raw):
        return int(np.frombuffer(raw, EXTENT)[0]["position_last"]) < position
    raw = open_file("delay.index").pread(INDEX_ENTRY_SIZE, 0)
    if len(raw) < INDEX_ENTRY_SIZE:
        return False
    row = np.frombuffer(raw, INDEX_ENTRY)[0]
    later = (int(row["epoch_tag"]) - epoch - 1) % TAG_COUNT < _EPOCHS_AHEAD_MAX
    return int(row["global_index"]) == 1 and not later


def cut_files(
    open_file: Callable[..., File], folder: str, hour: int, row_count: int, *, with_seconds: bool
) -> CutHour:
    """Truncate the files to the first `row_count` rows, their records and extents.

    `with_seconds` = there is a second index. Raises CorruptionError if a file is shorter than its
    durable part.
    """
    index = open_file("delay.index")
    if index.size() < row_count * INDEX_ENTRY_SIZE:
        raise rows_are_missing(f"{folder}/delay.index", index.size(), row_count)
    file = open_file("extents", create=True)
    extents, count = extents_upto(file, f"{folder}/extents", row_count)
    # The last row has this too, but verifying it would read all rows of its flush.
    last = extents[count - 1]
    log_size = int(last["log_offset"]) + int(last["log_size"])
    log = open_file("delay.log")
    if log.size() < log_size:
        raise CorruptionError(
            "bodies are missing",
            path=f"{folder}/delay.log",
            position=log.size(),
            detail=f"{log_size} bytes were durable",
        )
    seconds, rewound = None, False
    if with_seconds:
        kept = open_file("second.index")
        seconds, rewound = _rewind_seconds(kept, index, hour, row_count, extents[count:])
    index.truncate(row_count * INDEX_ENTRY_SIZE)
    log.truncate(log_size)
    file.truncate(count * EXTENT_SIZE)
    return CutHour(log_size, count, seconds, rewound)


def _rewind_seconds(
    file: File, index: File, hour: int, row_count: int, extents: RowArray
) -> tuple[SecondIndex | None, bool]:
    """The second index for the rows that stay, and whether it was rewound to them.

    Rows after the cut may be torn, so a rewind uses them only if `extents`, those after the cut,
    verify them. Otherwise the result is None, and the index is rebuilt when it is next needed.
    """
    kept = SecondIndex.decode(file.pread(file.size(), 0))
    if kept is None or kept.covers < row_count:
        return None, False
    if kept.covers == row_count:
        return kept, False
    count = kept.covers - row_count
    raw = index.pread(count * INDEX_ENTRY_SIZE, row_count * INDEX_ENTRY_SIZE)
    if len(raw) != count * INDEX_ENTRY_SIZE or not _proven(raw, extents, row_count):
        return None, False
    kept.rewind(np.frombuffer(raw, INDEX_ENTRY), hour, row_count)
    return kept, True


def _proven(raw: bytes, extents: RowArray, first: int) -> bool:
    """Whether intact extents verify the index bytes `raw`, which follow row `first`."""
    at = 0
    for one in extents:
        if at == len(raw):
            break
        size = int(one["count"]) * INDEX_ENTRY_SIZE
        follows = int(one["first_index"]) == first + at // INDEX_ENTRY_SIZE + 1
        part = raw[at : at + size]
        if not (follows and whole_extent(one.tobytes()) and crc32c(part) == int(one["index_crc"])):
            return False
        at += size
    return at == len(raw)


# ------------------------------------------------------------------------------------- the hour

_WALK_SLICE: Final = 8192
_VERIFY_BYTES: Final = 4 << 20
_WRITE_SOON_BYTES: Final = 256 << 10
"""A flush of this size is sent to the disk at once. Otherwise the syncs of a checkpoint would have
to write so much that commits, and with them deliveries, wait for the disk."""


@dataclass(slots=True)
class Flush:
    """One append to an hour, ready to be written."""

    rows: RowArray
    data: Sequence[Block]
    data_size: int
    chain: ChainUpdate
    position_last: int
    extent: RowArray | None = None
    """The extent that `write_flush` has written."""


class DelayHour:
    """One hour's folder. Row numbers begin at 1."""

    def __init__(
        self, fs: FileSystem, folder: str, hour: int, opened: OpenHours[DelayHour] | None = None
    ) -> None:
        """`opened` registers the open files, heads and columns of this hour, and bounds them."""
        self._fs = fs
        self.folder = folder
        self.hour = hour
        self._opened = opened if opened is not None else OpenHours[DelayHour](1)
        self.used = False
        """Whether this hour was requested since the last check by `OpenHours`."""
        self.extent_count = 0
        # Weak: Python's collector may have frozen this hour, and frees no cycle of it then. A bound
        # method of a proxy would be strong.
        me: DelayHour = proxy(self)
        self.files = HourFiles(fs, folder, lambda: me._note_files())  # noqa: PLW0108
        self.reader = HourReader(self.files.open, folder, lambda: me.checks())  # noqa: PLW0108
        self.heads = HourHeads(
            self.files,
            self.reader,
            hour,
            lambda loaded: me._note_heads(loaded),  # noqa: PLW0108
        )
        self._checks: ExtentChecks | None = None
        self._own_extents = 0
        """Number of the first extent that was written since the files were opened."""
        self._states: dict[int, StateColumn] = {}
        self._pins = 0

    def _note_files(self) -> None:
        self._opened.files[self.hour] = self
        self._opened.grown = True

    def _note_heads(self, loaded: bool) -> None:
        if loaded:
            self._opened.heads[self.hour] = self
            self._opened.grown = True
        else:
            self._opened.heads.pop(self.hour, None)

    # ------------------------------------------------------------------ states

    def states(self, group: int = DEFAULT_GROUP) -> StateColumn:
        """The state column of a consumer group; its first change creates the file."""
        column = self._states.get(group)
        if column is None:
            path = self.files.path(state_name(group))
            column = StateColumn(self._fs, path, self._opened.dirty)
            self._states[group] = column
            self._opened.columns[column] = (self, group)
            self._opened.grown = True
        column.used = True
        return column

    def drop_states(self, group: int) -> None:
        """Close the column of a group, which must be idle; it is opened again when needed."""
        column = self._states.pop(group)
        self._opened.columns.pop(column, None)
        column.close()

    def all_states(self) -> list[StateColumn]:
        """The columns of all groups that have a file."""
        return [self.states(group) for group in self._groups()]

    def _groups(self) -> list[int]:
        """Groups whose states have a file."""
        groups = map(group_of_name, self._fs.listdir(self.folder))
        return [group for group in groups if group is not None]

    @property
    def state_columns(self) -> list[StateColumn]:
        """Columns in memory."""
        return list(self._states.values())

    # ------------------------------------------------------------------ appending

    def prepare(
        self, rows: RowArray, data: Sequence[Block], position_last: int, heads: SecondIndex
    ) -> Flush:
        """Prepare rows for an append. They must be in index order, and are changed in place.

        `heads` = `self.heads.get()`. Any thread.
        """
        assert int(rows["global_index"][0]) == self.row_count + 1, "rows are in index order"
        size = rows["size"].astype(np.int64)
        ends = np.cumsum(size)
        rows["offset"] = self.log_size + ends - size
        chain = heads.chain(rows, seconds_of(rows, self.hour))
        return Flush(rows, data, int(ends[-1]), chain, position_last)

    def write_flush(self, flush: Flush) -> None:
        """Write body, index and extent of a flush. Any thread; nothing is visible yet."""
        with self.files.reading():
            rows = flush.rows
            self.files.changed()
            log = self.files.open("delay.log", create=True)
            if flush.data_size:
                written = log.pwritev([d for d in flush.data if len(d)], self.log_size)
                assert written == flush.data_size, "bodies and sizes agree"
            raw = rows.view(np.uint8).data
            index = self.files.open("delay.index", create=True)
            index.pwritev([raw], self.row_count * INDEX_ENTRY_SIZE)
            if flush.data_size + raw.nbytes >= _WRITE_SOON_BYTES:
                log.begin_writing(self.log_size, flush.data_size)
                index.begin_writing(self.row_count * INDEX_ENTRY_SIZE, raw.nbytes)
            extent = make_extent(
                rows,
                flush.data,
                first_index=self.row_count + 1,
                log_offset=self.log_size,
                log_size=flush.data_size,
                position_last=flush.position_last,
            )
            file = self.files.open("extents", create=True)
            file.pwritev([extent.tobytes()], self.extent_count * EXTENT_SIZE)
            flush.extent = extent[0]

    def commit_flush(self, flush: Flush) -> None:
        """Make a written flush visible: from here on readers find its rows in the files."""
        self.heads.get().apply(flush.chain)
        self.heads.mark_dirty()
        self.reader.row_count += len(flush.rows)
        self.reader.log_size += flush.data_size
        self.extent_count += 1
        if self._checks is not None:
            assert flush.extent is not None, "a flush is written before it is committed"
            self._checks.append(flush.extent)

    # ------------------------------------------------------------------ reading

    def read_rows(self, indexes: Int64Array) -> RowArray:
        """Copies of the index rows `indexes` (all of them in the files)."""
        return self.reader.rows(indexes)

    def read_records(self, rows: RowArray, *, checked: bool = True) -> bytes:
        """The records (id, key, tags, headers, body) of `rows`, one after another.

        As `checked` of `HourStore.records`.
        """
        return self.reader.records(rows, checked=checked)

    def read_heads(self, rows: RowArray) -> bytes:
        """Id, key, tags and headers of `rows`, one after another; bodies are not read.

        No checksum is verified, since that would read every body of an extent. The caller compares
        the texts that it uses with the hashes in the rows.
        """
        return self.reader.heads(rows)

    @property
    def row_count(self) -> int:
        """How many rows are in the files."""
        return self.reader.row_count

    @property
    def log_size(self) -> int:
        """Bytes of records in the files."""
        return self.reader.log_size

    def walk_second(
        self, second: int, last: int, *, before: int = 0, slice_rows: int = _WALK_SLICE
    ) -> Generator[list[int], None, None]:
        """Follow one second's chain newest first, in slices; rows after `last` are skipped.

        With `before`, the walk begins at the predecessor of that row, otherwise at the head.
        """
        with self.pinned():
            index = self.heads.newest(second)
            if before:
                row = self.read_rows(np.array([before], np.int64))[0]
                if row["global_index"]:
                    index = int(row["pre_global_index"])
                else:
                    # Compaction removed the row, and the chain skips it now.
                    last = min(last, before - 1)
            yield from self.reader.walk(index, last, slice_rows=slice_rows)

    def scan_rows(self) -> Iterator[RowArray]:
        """All rows in index order, in parts, read with pread."""
        return self.reader.scan(1, self.row_count)

    def own_reader(self) -> HourReader:
        """A reader for another thread, which uses it within `files.reading`."""
        return HourReader(self.files.open, self.folder, self.checks)

    def read_range(self, first: int, last: int) -> RowArray:
        """Rows first..last. Any thread."""
        with self.files.reading():
            return concat_rows(list(self.reader.scan(first, last)))

    def extents(self) -> RowArray:
        """All extents, checked. Raises CorruptionError for a damaged one."""
        count = self.extent_count
        if count == 0:
            return np.zeros(0, EXTENT)
        return read_extents(self.files.open("extents"), count, self.files.path("extents"))

    def checks(self) -> ExtentChecks:
        """The checks of this hour's extents since its files were opened."""
        if self._checks is None:
            extents = self.extents()
            self.reader.sparse = some(extents["flags"] & EXTENT_REWRITTEN)
            self._checks = ExtentChecks(
                self.files.open, self.folder, extents, good_from=self._own_extents
            )
        return self._checks

    def verify(self, *, records: bool = True) -> Generator[None, None, None]:
        """Verify every flushed range again, yielding every few MiB. Any thread.

        Without `records`, verify only rows, and only those that were not verified yet. This also
        loads the files into the page cache before dispatch needs them.
        """
        with self.files.reading():
            if records:
                self._checks = None
                self._own_extents = self.extent_count
            checks = self.checks()
            read = 0
            for number in range(checks.count) if records else checks.unchecked_rows():
                read += checks.check_rows(number)
                if records:
                    read += checks.check_records(number)
                if read >= _VERIFY_BYTES:
                    read = 0
                    yield
            yield

    def unchecked_records(self, rows: RowArray) -> list[int]:
        """Extents that hold records of `rows` and were not checked yet; see `check_records`."""
        return self.checks().unchecked_records(rows["offset"].astype(np.int64))

    def check_records(self, number: int) -> None:
        """Check the records of one extent. Any thread."""
        with self.files.reading():
            self.checks().check_records(number)

    # ------------------------------------------------------------------ compaction

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Prevent a replacement of the files while work in slices uses rows or a chain position."""
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1

    @property
    def replaceable(self) -> bool:
        """Whether no thread reads the files and nothing is pinned."""
        return self._pins == 0 and self.files.readers == 0

    def replacing(self, rewrite: HourRewrite) -> Work:
        """Replace the files by those of `rewrite`, which cover all rows.

        No append and no sync may run meanwhile. Until the last step, which is taken even if the
        work is closed before it, readers use the old files, so all of them are opened first.
        """
        assert rewrite.row_count == self.row_count, "a rewrite has every row"
        counts = self.heads.get().count.copy()
        for name in ("delay.log", "delay.index", "extents"):
            self.files.open(name)
        left: list[File] = []

        def take_over() -> None:
            left.extend(self._take_files())
            self.files.exchanged()
            self._own_extents, self.extent_count = 0, rewrite.extent_count
            self.reader.log_size = rewrite.log_size
            self.heads.replace(rewrite.seconds, dirty=False)

        def close() -> None:
            while left:
                left.pop().close()

        try:
            try:
                with self.files.reading():
                    yield lambda: rewrite.replace(counts)
                    while self._pins or not self.files.act_alone(take_over):
                        yield 0.001
            finally:
                if not rewrite.replaced:
                    self.files.renamed()
                elif not left:
                    take_over()
            # These files are deleted: closing them frees their space, which may take long.
            yield close
        finally:
            close()

    # ------------------------------------------------------------------ opening, ending

    def holds_rows_before(self, position: int, epoch: int) -> bool:
        """Whether frames below `position`, of epochs up to `epoch`, made the hour's first rows.

        Otherwise the hour was removed after `position`, and may have got rows again after the
        clock was set back. A removal deletes the extents and the delay index first.
        """
        if not self.files.exists("delay.index") or not self.files.exists("extents"):
            return False
        return first_rows_are_before(self.files.open, position, epoch)

    def cut(self, row_count: int) -> None:
        """Cut the hour to its first `row_count` rows, for recovery; replay restores later rows."""
        if row_count == 0:
            if self._fs.exists(self.folder):
                self.close()
                self._fs.remove_tree(self.folder)
            return
        if not self.files.exists("delay.index"):
            raise rows_are_missing(self.files.path("delay.index"), 0, row_count)
        self._checks = None
        kept = self.files.exists(SECOND_INDEX)
        left = cut_files(self.files.open, self.folder, self.hour, row_count, with_seconds=kept)
        self.reader.row_count, self.reader.log_size = row_count, left.log_size
        self.extent_count = self._own_extents = left.extent_count
        if left.seconds is not None:
            self.heads.replace(left.seconds, dirty=left.rewound)
        else:
            self.heads.drop()
        for group in self._groups():
            self.states(group).cut(row_count)
            self.drop_states(group)

    def close_files(self) -> None:
        """Close the files, which are opened and verified again on demand. Sync appends before."""
        for file in self._take_files():
            file.close()

    def _take_files(self) -> list[File]:
        """The open files; the caller closes them."""
        self.reader.unmap()
        self._checks = None
        self._own_extents = self.extent_count
        self._opened.files.pop(self.hour, None)
        return self.files.take()

    def close_idle_files(self) -> bool:
        """Close the files unless appends are unsynced or a thread uses them; return whether."""
        return self.files.close_if_idle(self.close_files)

    def close(self) -> None:
        """Close everything. Unwritten changes are dropped."""
        self.close_files()
        for group in list(self._states):
            self.drop_states(group)
        self.heads.forget()


# ------------------------------------------------------------------------- chains, read in jobs

SLICE_ROWS: Final = 8_192
"""Approximate number of rows of one job; the loop then processes them in about a millisecond."""
_SLICE_CHAINS: Final = 128
_WARM_GAP_PAGES: Final = 16
_WARM_BYTES: Final = 1 << 20


@dataclass(slots=True)
class ChainSlice:
    """Rows of chains, in ascending order, and the extents whose records are not verified yet."""

    index: Int64Array
    rows: RowArray
    unchecked: list[int]


class ChainReader:
    """Follows chains of one hour, whose files the caller keeps open (`DelayHour.reading`)."""

    def __init__(
        self, fs: FileSystem, folder: DelayHour, chains: Iterable[tuple[int, int]]
    ) -> None:
        """`chains` = the head of each, and the last row that counts."""
        self._fs = fs
        self._folder = folder
        reader = folder.own_reader()
        self._walks: Iterator[list[int]] = (
            part
            for head, last in chains
            if head
            for part in reader.walk(head, last, slice_rows=SLICE_ROWS)
        )
        self._reader = reader
        self._over = False

    def read(self) -> Generator[IoJob, None, ChainSlice | None]:
        """Read the next slice; None after the last one."""
        while not self._over:
            box: list[ChainSlice] = []
            states = [column.path for column in self._folder.state_columns if not column.absent]
            yield ReadJob(partial(self._read, states, box))
            if box:
                return box[0]
        return None

    def _read(self, states: list[str], box: list[ChainSlice]) -> None:
        found: list[int] = []
        for _ in range(_SLICE_CHAINS):
            part = next(self._walks, None)
            if part is None:
                self._over = True
                break
            found += part
            if len(found) >= SLICE_ROWS:
                break
        if found:
            index = np.sort(np.array(found, np.int64))
            rows = self._reader.rows(index)
            for path in states:
                _warm(self._fs, path, index)
            box.append(ChainSlice(index, rows, self._folder.unchecked_records(rows)))


def _warm(fs: FileSystem, path: str, index: Int64Array) -> None:
    """Load the pages of a state column with the states of these rows into the page cache.

    The column itself belongs to the loop, which reads these pages through a map.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        pages = distinct((index - 1) // PAGE_ROWS)
        cuts = np.flatnonzero(np.diff(pages) > _WARM_GAP_PAGES)
        firsts = pages[np.concatenate([[0], cuts + 1])] * PAGE_SIZE
        ends = (pages[np.concatenate([cuts, [len(pages) - 1]])] + 1) * PAGE_SIZE
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
            for at in range(first, end, _WARM_BYTES):
                file.pread(min(_WARM_BYTES, end - at), at)
    finally:
        file.close()
