"""Puts rows of one hour on a page: their texts are compared, and their bodies read if asked for.

Rows come in the order of the list and have matched by their columns and states already. Which rows
come next is decided by `list_hour`. Rows were read in earlier slices, so each part of far rows is
read again in the slice that reads its records.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import numpy as np

from delaylog.broker.engine.views.list_filter import Mask, RowFilter, check_heads
from delaylog.broker.engine.views.list_page import Listed, PageRun
from delaylog.broker.engine.views.list_tail import TailView
from delaylog.storage.columns.whole_rows import copy_rows, put_rows, take_rows
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_hour import FarHour
from delaylog.storage.layout import (
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
    head_sizes,
    make_ref,
)
from delaylog.storage.messages.records import NO_TEXTS, RawTexts, raw_texts

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
