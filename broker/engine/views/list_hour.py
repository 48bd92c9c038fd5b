"""One hour of a list: which of its rows come next, in order, and how they get on a page.

An hour is read in one of two ways. If the zone maps leave few candidates, all of them are read once
and only the first matching rows are kept. Otherwise the chains are followed second by second, so
that the cost of a page depends on its length; a second with very many rows is listed newest first.
Apart from such seconds both ways give the same order, so either may continue where the other ended.

Rows that are not in the files yet are seen by a snapshot of the tail at one moment (`TailView`):
rows that the splitter writes meanwhile are still there, and the files are read only up to the last
row that they had then. Only the columns that order rows are copied.

`PageFiller` gets rows in the order of the list, which have matched by their columns and states
already. It compares their texts, and reads bodies if asked for. Rows were read in earlier slices,
so each part of far rows is read again in the slice that reads its records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Final

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.views.list_page import (
    BEFORE_ALL,
    Listed,
    Mask,
    PageRun,
    RowFilter,
    Smallest,
    check_heads,
)
from delaylog.broker.engine.views.scan import SLICE_ROWS, candidates, index_slices, part_slices
from delaylog.storage.columns import concat_rows, copy_rows, put_rows, take_rows
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_tier import FarHour, FarHourStates
from delaylog.storage.hours.state_column import StateColumn
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SECONDS,
    INDEX_ENTRY,
    INDEX_MASK,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
    head_sizes,
    make_ref,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.records import NO_TEXTS, RawTexts, raw_texts
from delaylog.storage.messages.rows import seconds_of

# --------------------------------------------------------------- rows that are not in files yet

_SLICE_ROWS: Final = 16_384


class TailView:
    """Rows of a tail that match a filter, ordered by (due time, index)."""

    def __init__(self, parts: list[tuple[RowArray, Block]]) -> None:
        self._parts = parts
        empty = np.zeros(0, np.int64)
        self.due, self.expires, self.index, self.sent = empty, empty, empty, np.zeros(0, np.uint64)
        self._part, self._at = empty, empty

    def __len__(self) -> int:
        return len(self.index)

    def fill(self, keep: Callable[[RowArray], Mask], last: int) -> Generator[None, None, None]:
        """Read the rows with numbers above `last`, in slices."""
        columns: list[tuple[Int64Array, ...]] = []
        every = [rows for rows, _ in self._parts]
        for first, stop in part_slices(every, _SLICE_ROWS):
            parts = every[first:stop]
            rows = concat_rows(parts)
            lengths = [len(part) for part in parts]
            mask = keep(rows) & (rows["global_index"] > last)
            part = np.repeat(np.arange(first, stop), lengths)
            at = np.arange(len(rows)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
            due, expires = rows["deliver_at"][mask], rows["expires_at"][mask]
            index, sent = rows["global_index"][mask].astype(np.int64), rows["sent_position"][mask]
            columns.append((due, expires, index, sent, part[mask], at[mask]))
            yield
        if columns:
            due, expires, index, sent, part, at = map(np.concatenate, zip(*columns, strict=True))
            order = np.lexsort((index, due))
            self.due, self.expires, self.index = due[order], expires[order], index[order]
            self.sent, self._part, self._at = sent[order], part[order], at[order]

    def _located(self, which: Int64Array) -> list[tuple[RowArray, Block, int]]:
        parts = self._parts
        return [
            (*parts[part], at)
            for part, at in zip(self._part[which].tolist(), self._at[which].tolist(), strict=True)
        ]

    def rows(self, which: Int64Array) -> RowArray:
        """Copies of rows, by their numbers here."""
        if len(which) == 0:
            return np.zeros(0, INDEX_ENTRY)
        raw = b"".join([rows[at : at + 1].tobytes() for rows, _, at in self._located(which)])
        return np.frombuffer(raw, INDEX_ENTRY)

    def records(self, which: Int64Array, *, heads: bool) -> list[bytes]:
        """Their records, or with `heads` only the parts before the bodies."""
        out = []
        for rows, data, at in self._located(which):
            one = rows[at : at + 1]
            size = int(head_sizes(one)[0]) if heads else int(one["size"][0])
            start = int(one["offset"][0])
            out.append(bytes(data[start : start + size]))
        return out


# ----------------------------------------------------------------------------- rows onto a page

_PUT_ROWS: Final = 64


class PageFiller:
    """Fills one page from one hour."""

    def __init__(
        self, run: PageRun, filter_: RowFilter, folder: DelayHour | FarHour, tail: TailView
    ) -> None:
        self._run = run
        self._filter = filter_
        self._folder = folder
        self._tail = tail

    def put(
        self, rows: RowArray, entries: StateArray, shown: Int64Array, sources: Int64Array
    ) -> Generator[None, None, int]:
        """Put messages on the page; returns how many rows were examined."""
        run = self._run
        for start in range(0, len(rows), _PUT_ROWS):
            part = slice(start, start + _PUT_ROWS)
            mine, there = self._read_again(rows[part], sources[part])
            heads = self._heads(mine, sources[part])
            good = np.array([self._filter.exact(head) for head in heads], np.bool_)
            at = np.flatnonzero(good & there)
            take = at[: run.left]
            if self._run.query.bodies:
                take = take[: self._fit(take_rows(mine, take))]
            bodies = yield from self._bodies_of(take_rows(mine, take), sources[start + take])
            for k, body in zip(take.tolist(), bodies, strict=True):
                state = MessageState(int(shown[start + k]))
                row = mine[k]
                ref = make_ref(self._folder.hour, int(row["epoch_tag"]), int(row["global_index"]))
                origin, entry = int(row["origin"]), entries[start + k]
                listed = Listed(origin, ref, row, entry, state, heads[k], body)
                run.page.messages.append(listed)
            if len(take) < len(at):
                return start + int(at[len(take)])
            yield
        return len(rows)

    def _read_again(self, rows: RowArray, sources: Int64Array) -> tuple[RowArray, Mask]:
        """Rows as they are now, and which of them still have their records.

        A near hour is pinned, so its rows have not changed. Records of far rows may have moved, and
        rows of messages that have ended since they matched may have been dropped.
        """
        filed = np.flatnonzero(sources < 0)
        if isinstance(self._folder, DelayHour) or len(filed) == 0:
            return rows, np.ones(len(rows), np.bool_)
        out = copy_rows(rows)
        put_rows(out, filed, self._folder.read_rows(rows["global_index"][filed]))
        return out, (out["epoch_tag"] == rows["epoch_tag"]) & (out["size"] == rows["size"])

    def _fit(self, rows: RowArray) -> int:
        """How many of these rows fit on the page with their bodies; the first always fits."""
        run = self._run
        total = np.cumsum(rows["size"].astype(np.int64)) + run.body_bytes
        fit = int(np.searchsorted(total, run.bytes_max, side="right"))
        if not run.page.messages:
            fit = max(fit, 1)
        fit = min(fit, len(rows))
        if fit:
            run.body_bytes = int(total[fit - 1])
        if fit < len(rows):
            run.body_bytes = run.bytes_max
        return fit

    def _bodies_of(
        self, rows: RowArray, sources: Int64Array
    ) -> Generator[None, None, list[bytes | None]]:
        """The bodies of rows; records that were not verified yet are verified, in slices."""
        out: list[bytes | None] = [None] * len(rows)
        if not self._run.query.bodies:
            return out
        skip = head_sizes(rows).tolist()
        filed, late = np.flatnonzero(sources < 0), np.flatnonzero(sources >= 0)
        if len(filed):
            for number in self._folder.unchecked_records(take_rows(rows, filed)):
                self._folder.check_records(number)
                yield
            raw, at = self._folder.read_records(take_rows(rows, filed)), 0
            for k, size in zip(filed.tolist(), rows["size"][filed].tolist(), strict=True):
                out[k] = raw[at + skip[k] : at + size]
                at += size
        for k, record in zip(
            late.tolist(), self._tail.records(sources[late], heads=False), strict=True
        ):
            out[k] = record[skip[k] :]
        return out

    def _heads(self, rows: RowArray, sources: Int64Array) -> list[RawTexts]:
        sizes = head_sizes(rows)
        out = [NO_TEXTS] * len(rows)
        named = sizes > 0
        filed = np.flatnonzero(named & (sources < 0))
        if len(filed):
            part = take_rows(rows, filed)
            raw = self._folder.read_heads(part)
            heads = list(raw_texts(raw, part, sizes[filed]))
            check_heads(heads, part, f"{self._folder.folder}/delay.log", self._filter.id_hash)
            for at, head in zip(filed.tolist(), heads, strict=True):
                out[at] = head
        late = np.flatnonzero(named & (sources >= 0))
        if len(late):
            raw = b"".join(self._tail.records(sources[late], heads=True))
            for at, head in zip(
                late.tolist(), raw_texts(raw, take_rows(rows, late), sizes[late]), strict=True
            ):
                out[at] = head
        return out


# ---------------------------------------------------------------------------- the order of rows

SCAN_ROWS_FEW: Final = 65_536
"""Up to this many candidates are read in any case."""
_WALK_ROWS: Final = 1_024
_TAGGED_ROWS: Final = 4_096
_MATCH_ROWS: Final = 1_024

Steps = Generator[None, None, None]
Matching = tuple[RowArray, StateArray, Int64Array, Int64Array]
"""Rows, their states, the states they are shown with, and their numbers in the tail or -1."""


class HourList:
    """The rest of one hour, for one page."""

    def __init__(
        self,
        run: PageRun,
        filter_: RowFilter,
        folder: DelayHour | FarHour,
        tail: TailView,
        last: int,
    ) -> None:
        """Rows up to `last` are in the files, rows behind it in `tail`."""
        self._run = run
        self._filter = filter_
        self._folder = folder
        self._tail = tail
        self._last = last
        self._filler = PageFiller(run, filter_, folder, tail)
        self._start_ms = folder.hour * HOUR_MS

    @property
    def _states(self) -> StateColumn | FarHourStates:
        # Not cached: it may be closed between two slices.
        return self._folder.states(self._filter.group.number)

    def steps(self) -> Generator[None, None, bool]:
        """Put rows on the page; returns whether the end of the hour was reached."""
        with self._folder.pinned():
            return (yield from self._steps())

    def _steps(self) -> Generator[None, None, bool]:
        if self._run.cursor.chain and isinstance(self._folder, DelayHour):
            yield from self._hot_second(self._folder, self._run.cursor.second)
            if self._run.over:
                return False
        wanted = self._filter
        runs = candidates(
            self._folder,
            self._last,
            topic=wanted.topic,
            tag_bits=wanted.tag_bits,
            due_from=max(wanted.due_from, self._run.cursor.due),
            due_to=wanted.due_to,
        )
        count = sum(last - first + 1 for first, last in runs)
        rows_max = self._run.effort.scan_rows_max
        if not wanted.selective:
            rows_max = min(rows_max, max(SCAN_ROWS_FEW, 16 * self._run.left))
        if count <= rows_max or isinstance(self._folder, FarHour):
            return (yield from self._scan(runs))
        return (yield from self._walk(self._folder))

    # ------------------------------------------------------------------ reading all candidates

    def _scan(self, runs: list[tuple[int, int]]) -> Generator[None, None, bool]:
        run = self._run
        # One row more than fits tells whether the hour goes on behind the page. With a tag more are
        # kept, since rows with the bits of the tag may not have it.
        count = run.left + 1 if self._filter.tag_bits == 0 else max(run.left + 1, _TAGGED_ROWS)
        found = Smallest(count)
        for index in index_slices(runs):
            self._collect(index, found)
            yield
        tail = self._tail
        at = self._after_cursor(tail.due, tail.index)
        for start in range(0, len(at), SLICE_ROWS):
            part = at[start : start + SLICE_ROWS]
            entries = self._states.get(tail.index[part])
            mask, _ = self._filter.states(
                tail.due[part], tail.expires[part], tail.sent[part], entries
            )
            found.add(tail.due[part[mask]], tail.index[part[mask]])
            yield
        due, index = found.first()
        late = index > self._last
        which = np.flatnonzero(np.isin(tail.index, index[late]))
        if not (yield from self._look(index[~late], which)):
            return False
        if found.total <= count:
            return True
        # Rows that changed meanwhile were skipped: the cursor is behind those too.
        run.cursor = replace(run.cursor, due=int(due[-1]), index=int(index[-1]))
        return False

    def _collect(self, index: Int64Array, found: Smallest) -> None:
        """Add the matching rows of a range."""
        self._run.page.scanned += len(index)
        if not self._filter.unhandled:
            # Read states first: they are small, and few match.
            index = index[self._filter.stored(self._states.get(index))]
            if len(index) == 0:
                return
        rows = self._folder.read_rows(index)
        mask = self._filter.rows(rows)
        # Columns, not rows: numpy copies structured rows ten times as slowly.
        due, index, expires = rows["deliver_at"][mask], index[mask], rows["expires_at"][mask]
        if len(index):
            sent = rows["sent_position"][mask]
            mask, _ = self._filter.states(due, expires, sent, self._states.get(index))
            due, index = due[mask], index[mask]
        at = self._after_cursor(due, index)
        found.add(due[at], index[at])

    def _after_cursor(self, due: Int64Array, index: Int64Array) -> Int64Array:
        """Indexes of the rows behind the cursor, in due order."""
        cursor = self._run.cursor
        mask = (due > cursor.due) | ((due == cursor.due) & (index > cursor.index))
        out: Int64Array = np.flatnonzero(mask)
        return out

    # ------------------------------------------------------------------ walking its seconds

    def _walk(self, folder: DelayHour) -> Generator[None, None, bool]:
        run, tail = self._run, self._tail
        in_files = folder.heads.get().count if self._last else np.zeros(HOUR_SECONDS, np.uint32)
        tail_seconds = self._seconds(tail.due)
        counts = in_files + np.bincount(tail_seconds, minlength=HOUR_SECONDS)
        # Behind the greatest row number of a millisecond the next one begins.
        due = run.cursor.due + (run.cursor.index == INDEX_MASK)
        bounds = np.array([max(due, self._filter.due_from), self._filter.due_to - 1])
        low, high = self._seconds(bounds).tolist()
        index: list[int] = []
        gathered = 0
        first = low
        for second in np.flatnonzero(counts).tolist():
            if not low <= second <= high:
                continue
            if counts[second] > self._run.effort.second_rows_max:
                if not (yield from self._look_at(index, first, second - 1)):
                    return False
                yield from self._hot_second(folder, second)
                index, first, gathered = [], second + 1, 0
                if run.over:
                    return False
                continue
            gathered += int(counts[second])
            if in_files[second]:
                for part in folder.walk_second(second, self._last, slice_rows=_WALK_ROWS):
                    index += part
                    yield
            if gathered >= _WALK_ROWS:
                if not (yield from self._look_at(index, first, second)):
                    return False
                index, first, gathered = [], second + 1, 0
                if run.over:
                    return False
        return (yield from self._look_at(index, first, high))

    def _look_at(self, index: list[int], first: int, last: int) -> Generator[None, None, bool]:
        """List whole seconds; `index` = the numbers of their rows in the files."""
        if last < first:
            return True
        seconds = self._seconds(self._tail.due)
        which = np.flatnonzero((seconds >= first) & (seconds <= last))
        self._run.page.scanned += len(index)
        rows = np.sort(np.array(index, np.int64))
        if not (yield from self._look(rows, which)):
            return False
        self._pass_second(last)
        return True

    def _pass_second(self, second: int) -> None:
        """Move the cursor to the end of a second."""
        end_ms = self._start_ms + second * 1000 + 999
        self._run.cursor = replace(
            self._run.cursor, due=end_ms, index=INDEX_MASK, second=0, chain=0
        )

    def _seconds(self, due: Int64Array) -> Int64Array:
        """The second of the hour of each due time, clipped to the hour."""
        out: Int64Array = np.clip(
            (np.maximum(due, self._start_ms) - self._start_ms) // 1000, 0, HOUR_SECONDS - 1
        )
        return out

    def _hot_second(self, folder: DelayHour, second: int) -> Steps:
        """List a second with very many rows, newest first, from the cursor on."""
        run, tail = self._run, self._tail
        before = run.cursor.chain
        if not before:
            run.cursor = replace(run.cursor, second=second, chain=INDEX_MASK)
            before = INDEX_MASK
        which = np.flatnonzero((self._seconds(tail.due) == second) & (tail.index < before))
        which = which[np.argsort(-tail.index[which])]
        for start in range(0, len(which), _WALK_ROWS):
            part = which[start : start + _WALK_ROWS]
            yield from self._look_newest_first(np.zeros(0, np.int64), part)
            if run.over:
                return
        if self._last:
            behind = before if before <= self._last else 0
            if behind:
                self._check_chain(behind, second)
            for found in folder.walk_second(
                second, self._last, before=behind, slice_rows=_WALK_ROWS
            ):
                index = np.array(found, np.int64)
                run.page.scanned += len(index)
                if len(index):
                    yield from self._look_newest_first(index, np.zeros(0, np.int64))
                    if run.over:
                        return
                yield
        self._pass_second(second)

    def _check_chain(self, index: int, second: int) -> None:
        row = self._folder.read_rows(np.array([index], np.int64))
        if row["global_index"][0] and int(seconds_of(row, self._folder.hour)[0]) != second:
            raise BadRequestError("cursor names no row of a list", field="cursor")

    # ------------------------------------------------------------------ rows to list

    def _look(self, index: Int64Array, which: Int64Array) -> Generator[None, None, bool]:
        """List rows in due order; returns whether all of them were listed."""
        rows, entries, shown, sources = yield from self._matching(index, which)
        order = np.lexsort((rows["global_index"], rows["deliver_at"]))
        seen = yield from self._filler.put(
            take_rows(rows, order), take_rows(entries, order), shown[order], sources[order]
        )
        if seen:
            row = rows[order[seen - 1]]
            due, last = int(row["deliver_at"]), int(row["global_index"])
            self._run.cursor = replace(self._run.cursor, due=due, index=last, second=0, chain=0)
        return seen == len(rows)

    def _look_newest_first(self, index: Int64Array, which: Int64Array) -> Steps:
        """List some rows of a hot second, in the order given."""
        rows, entries, shown, sources = yield from self._matching(index, which)
        seen = yield from self._filler.put(rows, entries, shown, sources)
        if seen == len(rows):
            last = int(index[-1]) if len(index) else int(self._tail.index[which[-1]])
        elif seen:
            last = int(rows["global_index"][seen - 1])
        else:
            return
        self._run.cursor = replace(self._run.cursor, chain=last)

    def _matching(self, index: Int64Array, which: Int64Array) -> Generator[None, None, Matching]:
        """Rows that match by columns and states, and for each its number in the tail or -1."""
        parts = []
        for start in range(0, len(index), _MATCH_ROWS):
            part = index[start : start + _MATCH_ROWS]
            in_files = np.full(len(part), -1, np.int64)
            parts.append(self._match(self._folder.read_rows(part), in_files))
            yield
        for start in range(0, len(which), _MATCH_ROWS):
            part = which[start : start + _MATCH_ROWS]
            parts.append(self._match(self._tail.rows(part), part))
            yield
        if not parts:
            return self._match(self._tail.rows(which), which)
        rows, entries, shown, sources = zip(*parts, strict=True)
        return (
            concat_rows(rows),
            concat_rows(entries),
            np.concatenate(shown),
            np.concatenate(sources),
        )

    def _match(self, rows: RowArray, sources: Int64Array) -> Matching:
        at = np.flatnonzero(self._filter.rows(rows))
        due, index = rows["deliver_at"][at], rows["global_index"][at].astype(np.int64)
        behind = self._after_cursor(due, index)
        at, due, index = at[behind], due[behind], index[behind]
        entries = self._states.get(index)
        mask, shown = self._filter.states(
            due, rows["expires_at"][at], rows["sent_position"][at], entries
        )
        at = at[mask]
        return take_rows(rows, at), take_rows(entries, mask), shown[mask], sources[at]


assert BEFORE_ALL < 0, "every due time lies behind it"
