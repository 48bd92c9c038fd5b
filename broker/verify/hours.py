"""Verify one delay hour: extents, rows, chains, records, second index and states.

Chains and the second index are computed from the rows and compared with the files: no file is
trusted because of another one.

The second index is written in place, so after a power cut some sectors may be old. Then the header
and each entry belong to one of several versions of the file, all of which can be computed from the
rows. Any other content is damage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from delaylog.broker.verify.report import Report
from delaylog.storage.columns import every
from delaylog.storage.files.file_system import File, FileSystem, read_file
from delaylog.storage.hours.extents import sound_extents
from delaylog.storage.hours.hour_rewrite import path_of
from delaylog.storage.hours.second_index import SecondIndex, rebuild
from delaylog.storage.hours.state_seal import broken
from delaylog.storage.layout import (
    EXTENT_HOLE,
    EXTENT_REWRITTEN,
    EXTENT_SIZE,
    FILE_HEADER,
    FILE_HEADER_SIZE,
    HOUR_MS,
    HOUR_SECONDS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    NO_TAG,
    SECOND_ENTRY,
    SECOND_ENTRY_SIZE,
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    MessageState,
    RowArray,
    group_of_name,
    head_sizes,
)
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.runs.id_hash import IdHash

IsRow = Callable[[Int64Array], np.ndarray]
"""Mask of the refs that name an existing row."""
_STATE_ROWS = 65_536


class Folder(NamedTuple):
    """The data folder that is checked, and the report."""

    fs: FileSystem
    folder: str
    report: Report
    id_hash: IdHash


class HourCheck:
    """Checks one hour's folder. `rows_promised` = the rows that the newest checkpoint counts."""

    def __init__(
        self,
        within: Folder,
        name: str,
        hour: int,
        rows_promised: int,
        is_row: IsRow,
    ) -> None:
        self._id_hash = within.id_hash
        self._fs = within.fs
        self._place = f"{within.folder}/{name}"
        self._name = name
        self._hour = hour
        self._promised = rows_promised
        self._report = within.report
        self._is_row = is_row
        self._seconds = SecondIndex()
        self._rewritten = False
        self._removed: list[Int64Array] = []
        """Indexes, from 0, of rows that compaction removed."""
        self.living = 0
        """Minus the number of ended rows, for the default group."""

    def _path(self, name: str) -> str:
        return path_of(self._fs, self._place, name)

    def run(self) -> Generator[None, None, None]:
        """Check everything, yielding between slices."""
        if not self._fs.exists(self._path("delay.index")):
            if self._promised:
                self._report.damaged(
                    f"{self._name}/delay.index", 0, f"missing; {self._promised} rows were durable"
                )
                return
            rows = 0
        else:
            rows = yield from self._extents()
        if rows < self._promised:
            self._damaged(
                "extents", 0, f"they cover {rows} rows; {self._promised} rows were durable"
            )
        if rows:
            self._second_index(rows)
        for name in self._fs.listdir(self._place):
            if group_of_name(name) is not None:
                yield from self._states(name, rows)

    def _damaged(self, name: str, position: int, what: str) -> None:
        self._report.damaged(f"{self._name}/{name}", position, what)

    def _open(self, name: str) -> File | None:
        path = self._path(name)
        if not self._fs.exists(path):
            self._report_finding(name, 0, "missing", promised=self._promised > 0)
            return None
        self._report.files += 1
        return self._fs.open(path)

    # ------------------------------------------------------------------ rows and records

    def _extents(self) -> Generator[None, None, int]:
        """Check each extent; return the number of rows that they cover."""
        files = [self._open(name) for name in ("extents", "delay.index", "delay.log")]
        extents, index, log = files
        rows = 0
        try:
            if extents is None or index is None or log is None:
                return 0
            raw = extents.pread(extents.size(), 0)
            self._report.bytes_read += len(raw)
            log_end = 0
            sound, wrong = sound_extents(raw)
            for one in sound:
                # A start cuts rows behind those of the checkpoint, and replays them from the log.
                promised = rows < self._promised
                count, size = int(one["count"]), int(one["log_size"])
                self._rewritten |= bool(one["flags"] & EXTENT_REWRITTEN)
                if one["flags"] & EXTENT_HOLE:
                    yield from self._hole(index, rows, count, promised=promised)
                    rows += count
                    self._report.rows += count
                    continue
                head = index.pread(count * INDEX_ENTRY_SIZE, rows * INDEX_ENTRY_SIZE)
                body = log.pread(size, log_end)
                self._report.bytes_read += len(head) + len(body)
                intact = True
                for name, data, position, crc in (
                    ("delay.index", head, rows * INDEX_ENTRY_SIZE, int(one["index_crc"])),
                    ("delay.log", body, log_end, int(one["log_crc"])),
                ):
                    if crc32c(data) != crc:
                        what = f"the next {len(data)} bytes do not match their checksum"
                        self._report_finding(name, position, what, promised=promised)
                        intact = False
                if intact:
                    self._rows(np.frombuffer(head, INDEX_ENTRY), body, rows + 1, log_end)
                elif not promised:
                    break
                else:
                    self._seconds.covers = -1
                rows += count
                log_end += size
                self._report.rows += count
                yield
            else:
                if wrong:
                    at, promised = len(sound) * EXTENT_SIZE, rows < self._promised
                    self._report_finding("extents", at, wrong, promised=promised)
        finally:
            for file in files:
                if file is not None:
                    file.close()
        return rows

    def _hole(
        self, index: File, first: int, count: int, *, promised: bool
    ) -> Generator[None, None, None]:
        """Check an extent whose rows compaction has removed: it must be zeros."""
        for start in range(first, first + count, _STATE_ROWS):
            part = min(_STATE_ROWS, first + count - start)
            if any(index.pread(part * INDEX_ENTRY_SIZE, start * INDEX_ENTRY_SIZE)):
                at = start * INDEX_ENTRY_SIZE
                what = "bytes where compaction has removed all rows"
                self._report_finding("delay.index", at, what, promised=promised)
            self._removed.append(np.arange(start, start + part))
            yield
        if self._seconds.covers >= 0:
            self._seconds.covers += count

    def _report_finding(self, name: str, position: int, what: str, *, promised: bool) -> None:
        """Report damage of promised rows. For rows behind the checkpoint it is only a note."""
        if promised:
            self._damaged(name, position, what)
        else:
            tail = f"{what}; this is behind the checkpoint: a start cuts it and replays the log"
            self._report.note(f"{self._name}/{name}", position, tail)

    def _rows(self, rows: RowArray, body: bytes, first: int, log_start: int) -> None:
        """Check the rows of one extent, with their records and the chains so far."""
        size = rows["size"].astype(np.int64)
        ends = np.cumsum(size) + log_start
        known = self._seconds.covers >= 0
        numbers = np.arange(first, first + len(rows))
        # For rows that the far tier had dropped, a split wrote tombstones with NO_TAG.
        there = rows["epoch_tag"] != NO_TAG
        if self._rewritten:
            there &= rows["global_index"] != 0
        if not every(there):
            self._removed.append(np.flatnonzero(~there) + first - 1)
            rows, size, ends, numbers = rows[there], size[there], ends[there], numbers[there]
            self._seconds.covers += int(np.count_nonzero(~there)) if known else 0
        if len(rows) == 0:
            return
        expected = rows.copy()
        if known:
            update = self._seconds.chain(expected, seconds_of(expected, self._hour))
            self._seconds.apply(update)
        if self._rewritten and known:
            # Removed rows still count in the numbers of later rows of their second.
            self._seconds.count[seconds_of(rows, self._hour)] = rows["local_index"]
            expected["local_index"] = np.maximum(expected["local_index"], rows["local_index"])
        before, local = expected["pre_global_index"], expected["local_index"]
        meta = head_sizes(rows)
        for what, good in (
            (
                "the number of another row",
                rows["global_index"] == numbers,
            ),
            ("a record that does not follow the one before", rows["offset"] == ends - size),
            ("id, key, tags and headers longer than the record", meta <= size),
            ("a row that is due after its hour", rows["deliver_at"] // HOUR_MS <= self._hour),
            (
                "a chain that leads to a wrong row",
                rows["pre_global_index"] == before,
            ),
            (
                "a wrong number within its second",
                rows["local_index"] == local,
            ),
            ("an origin that is not a row", self._is_row(rows["origin"].astype(np.int64))),
            ("a wrong hash of the id", self._id_hashes(rows, body, ends - size - log_start)),
        ):
            for row in np.flatnonzero(~np.asarray(good))[:3].tolist():
                number = int(numbers[row])
                at = (number - 1) * INDEX_ENTRY_SIZE
                self._damaged("delay.index", at, f"row {number}: {what}")

    def _id_hashes(self, rows: RowArray, body: bytes, starts: Int64Array) -> np.ndarray:
        good = np.ones(len(rows), np.bool_)
        named = np.flatnonzero(rows["id_size"] > 0)
        columns = (starts[named], rows["id_size"][named], rows["id_hash"][named])
        for row, start, size, value in zip(
            named.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            good[row] = self._id_hash.one(body[start : start + size]) == value
        # A row keeps its hash when compaction removes its record.
        unnamed = (rows["id_size"] == 0) & ((rows["size"] > 0) | (not self._rewritten))
        good[unnamed] = rows["id_hash"][unnamed] == 0
        return good

    # ------------------------------------------------------------------ second index, states

    def _second_index(self, rows: int) -> None:
        path = self._path("second.index")
        if not self._fs.exists(path) or self._seconds.covers < 0:
            return
        raw = read_file(self._fs, path)
        self._report.files += 1
        self._report.bytes_read += len(raw)
        kept = SecondIndex.decode(raw)
        name = f"{self._name}/second.index"
        if kept is None:
            verdict = self._judge_seconds(raw, rows)
            if verdict is None:
                self._report.note(name, 0, "torn; a start rebuilds it from the delay index")
            else:
                what = f"{verdict[1]}; a start rebuilds it from the delay index"
                self._report.damaged(name, verdict[0], what)
        elif kept.covers != rows:
            what = f"it covers {kept.covers} rows of {rows}; a start completes it"
            self._report.note(name, 0, what)
        elif not (
            every(kept.newest == self._seconds.newest)
            and (
                every(kept.count >= self._seconds.count)
                if self._rewritten
                else every(kept.count == self._seconds.count)
            )
        ):
            self._damaged("second.index", 0, "it does not match the rows")

    def _judge_seconds(self, raw: bytes, rows: int) -> tuple[int, str] | None:
        with closing(self._fs.open(self._path("delay.index"))) as file:

            def read_rows(first: int, last: int) -> RowArray:
                size = (last - first + 1) * INDEX_ENTRY_SIZE
                return np.frombuffer(file.pread(size, (first - 1) * INDEX_ENTRY_SIZE), INDEX_ENTRY)

            return judge_second_index(raw, self._hour, rows, read_rows)

    def _states(self, name: str, rows: int) -> Generator[None, None, None]:
        file = self._open(name)
        if file is None:
            return
        ended = 0
        removed = np.concatenate(self._removed or [np.zeros(0, np.int64)])
        # Entries behind the last row are read too: rows still in the log may have states already.
        size = file.size()
        for start in range(0, size, _STATE_ROWS * STATE_ENTRY_SIZE):
            raw = file.pread(min(_STATE_ROWS * STATE_ENTRY_SIZE, size - start), start)
            entries = np.frombuffer(
                raw[: len(raw) // STATE_ENTRY_SIZE * STATE_ENTRY_SIZE], STATE_ENTRY
            )
            self._report.bytes_read += len(raw)
            mine = removed[(removed >= start // STATE_ENTRY_SIZE)]
            mine = mine[mine < start // STATE_ENTRY_SIZE + len(entries)] - start // STATE_ENTRY_SIZE
            ended += int(np.count_nonzero(entries["state"][mine] < STATE_ENDED_FIRST))
            if not np.frombuffer(raw[: len(raw) // 8 * 8], np.uint64).any():
                yield
                continue
            self._report.states += int(np.count_nonzero(entries["state"]))
            kinds = entries["state"]
            unstored = (kinds == MessageState.WAITING) | (kinds == MessageState.READY)
            leased = kinds == MessageState.LEASED
            moved = kinds == MessageState.MOVED
            forward = entries["forward"].astype(np.int64)
            leads = np.ones(len(entries), np.bool_)
            leads[forward != 0] = self._is_row(forward[forward != 0])
            for what, bad in (
                ("a state entry with a wrong seal", broken(entries)),
                (
                    "a state that does not exist",
                    (kinds > MessageState.MOVED) | unstored,
                ),
                ("a moved message without an existing row", (moved & (forward == 0)) | ~leads),
                (
                    "a lease without a number",
                    leased & (entries["lease"] == 0),
                ),
            ):
                for row in np.flatnonzero(bad)[:3].tolist():
                    at = start + row * STATE_ENTRY_SIZE
                    self._damaged(name, at, f"row {at // STATE_ENTRY_SIZE + 1}: {what}")
            inside = max(rows - start // STATE_ENTRY_SIZE, 0)
            ended += int(np.count_nonzero(kinds[:inside] >= STATE_ENDED_FIRST))
            yield
        file.close()
        if name == "state":
            self.living = -ended


ReadRows = Callable[[int, int], RowArray]
"""Rows first..last of the delay index."""
_PART_ROWS = 65_536


def judge_second_index(
    raw: bytes, hour: int, row_count: int, read_rows: ReadRows
) -> tuple[int, str] | None:
    """(offset, what is wrong) of a file that cannot be decoded; None if it is merely torn."""
    if len(raw) > FILE_HEADER_SIZE + HOUR_SECONDS * SECOND_ENTRY_SIZE:
        return 0, f"the file is too large: {len(raw)} bytes"
    head = raw[:FILE_HEADER_SIZE]
    if any(head):
        covers = FILE_HEADER.unpack(head.ljust(FILE_HEADER_SIZE, b"\0"))[3]
        if covers > row_count:
            return 0, f"the header says that it covers {covers} rows, of {row_count}"
        parts = [
            (read_rows(first, min(first + _PART_ROWS - 1, covers)), hour)
            for first in range(1, covers + 1, _PART_ROWS)
        ]
        if rebuild(parts).encode()[:FILE_HEADER_SIZE] != head:
            return 0, "the header does not match the rows"
    whole = (len(raw) - FILE_HEADER_SIZE) // SECOND_ENTRY_SIZE
    if whole <= 0:
        return None
    entries = np.frombuffer(raw, SECOND_ENTRY, whole, FILE_HEADER_SIZE)
    newest, count = entries["newest"].astype(np.uint64), entries["count"].astype(np.uint64)
    sound = (newest == 0) & (count == 0)
    inside = np.flatnonzero((newest >= 1) & (newest <= np.uint64(row_count)))
    for second in inside.tolist():
        row = read_rows(int(newest[second]), int(newest[second]))
        places: Int64Array = seconds_of(row, hour)
        sound[second] = places[0] == second and int(row["local_index"][0]) == int(count[second])
    if sound.all():
        return None
    second = int(np.flatnonzero(~sound)[0])
    where = FILE_HEADER_SIZE + second * SECOND_ENTRY_SIZE
    return where, f"second {second}: an entry that matches no version of the file"
