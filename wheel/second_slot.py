"""One second of the second level: whether it has stored entries, and its entries in memory.

A slot has entries (due, ref, lane) as sorted runs of arrays, and those of small frames as tuples in
a heap, since an array costs more than handling one tuple. *Live* entries are those that arrive when
the second is near; they are added without sorting the others, and sorted only when some entry of
the slot is due. `live_first` is the least row number of the live entries. Row numbers grow in log
order, so rows at or above it that a load finds are already in the slot.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

RUNS_MAX: Final = 8
SEAL_ENTRIES: Final = 16_384
FEW_ENTRIES_MAX: Final = 16
"""Up to this number of entries a turn or a load handles tuples: they cost less than arrays."""
HEAP_MAX: Final = 4_096
"""More tuples of a slot than this become arrays, which take a sixth of the memory."""
ROW_MASK: Final = 2**32 - 1
"""The low bits of a ref: its row number. The epoch tag above them wraps around, so refs do not
grow in log order."""
_REF_MAX: Final = 2**63 - 1


Entry: TypeAlias = tuple[int, int, int]
"""One entry: due time in ms, ref, lane (topic number)."""


class Entries(NamedTuple):
    """Columns of equal length: due times in ms, refs, lanes (topic numbers)."""

    due_ms: Int64Array
    refs: Int64Array
    lanes: Int64Array

    @property
    def count(self) -> int:  # type: ignore[override]  # nobody counts values in a tuple of columns
        """Number of entries."""
        return len(self.refs)


_EMPTY: Final = np.zeros(0, np.int64)
NO_ENTRIES: Final = Entries(_EMPTY, _EMPTY, _EMPTY)


def entries_of(few: list[Entry]) -> Entries:
    """Columns of entries, in their order."""
    columns = np.array(few, np.int64).reshape(-1, 3).T
    return Entries(*(np.ascontiguousarray(column) for column in columns))


def list_of(entries: Entries) -> list[Entry]:
    """Entries one by one, in their order."""
    due_ms, refs, lanes = entries
    return list(zip(due_ms.tolist(), refs.tolist(), lanes.tolist(), strict=True))


def join_entries(parts: list[Entries]) -> Entries:
    """Concatenate entries, without sorting them."""
    if len(parts) == 1:
        return parts[0]
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def sort_entries(entries: Entries) -> Entries:
    """Entries sorted by (due, ref); sorted ones are returned as they are."""
    due, refs, lanes = entries
    if len(due) < 2:
        return entries
    n = np.count_nonzero
    if n(refs[1:] > refs[:-1]) == n(due[1:] >= due[:-1]) == len(due) - 1:
        # The usual case, rows of one frame in the order of sending: refs rise, due times never
        # fall.
        return entries
    step = np.diff(due)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(refs)[step == 0] > 0).all()):
        return entries
    order = np.lexsort((refs, due))
    return Entries(due[order], refs[order], lanes[order])


class SecondSlot:
    """Entries of one absolute second."""

    __slots__ = (
        "_few",
        "_pending",
        "_pending_count",
        "_pending_min",
        "_runs",
        "live_first",
        "loaded",
        "loading",
        "second",
        "stored",
    )

    def __init__(self, second: int) -> None:
        self.second = second
        self.stored = False
        self.loading = False
        self.loaded = False
        self.live_first = _REF_MAX
        self._few: list[Entry] = []
        """A heap."""
        self._runs: list[Entries] = []
        self._pending: list[Entries] = []
        self._pending_count = 0
        self._pending_min = _REF_MAX

    @property
    def idle(self) -> bool:
        """Whether no entry is stored, loading or in memory: the slot can be removed."""
        return not (self.stored or self.loading or self._few or self._runs or self._pending)

    @property
    def took_live(self) -> bool:
        """Whether the slot got live entries."""
        return self.live_first != _REF_MAX

    def note_live(self, ref: int) -> None:
        """A live entry is released without being here; a load must leave it out."""
        row = ref & ROW_MASK
        if row < self.live_first:
            self.live_first = row

    def insert_one(self, entry: Entry) -> None:
        """Add a live entry."""
        self.note_live(entry[1])
        heappush(self._few, entry)
        if len(self._few) > HEAP_MAX:
            self._pack()

    def insert(self, entries: Entries) -> None:
        """Add live entries: O(1), however large the slot is."""
        self.note_live(int((entries.refs & ROW_MASK).min()))
        self._add(entries)

    def _add(self, entries: Entries) -> None:
        self._pending.append(entries)
        self._pending_count += entries.count
        self._pending_min = min(self._pending_min, int(entries.due_ms.min()))
        if self._pending_count >= SEAL_ENTRIES:
            self._seal()

    def _pack(self) -> None:
        """Turn the tuples into columns."""
        few, self._few = self._few, []
        self._add(entries_of(few))

    def load(self, entries: Entries) -> None:
        """Add the sorted entries from storage, without those that were added live."""
        self.stored = self.loading = False
        self.loaded = True
        fresh = entries.refs & ROW_MASK < self.live_first
        if not fresh.all():
            entries = Entries(*(column[fresh] for column in entries))
        if entries.count > FEW_ENTRIES_MAX:
            self._runs.append(entries)
        elif entries.count:
            self._few += list_of(entries)
            heapify(self._few)

    def head_ms(self) -> int | None:
        """Least due time of the entries in memory, or None."""
        if not (self._runs or self._pending):
            return self._few[0][0] if self._few else None
        heads = [int(run.due_ms[0]) for run in self._runs]
        if self._pending:
            heads.append(self._pending_min)
        if self._few:
            heads.append(self._few[0][0])
        return min(heads)

    def take_few(self, now_ms: int, limit: int) -> list[Entry] | None:
        """What `take` returns, if all of it is tuples; else None."""
        if (self._pending and self._pending_min <= now_ms) or any(
            int(run.due_ms[0]) <= now_ms for run in self._runs
        ):
            return None
        few = self._few
        out: list[Entry] = []
        while few and few[0][0] <= now_ms and len(out) < limit:
            out.append(heappop(few))
        return out

    def take(self, now_ms: int, limit: int) -> Entries:
        """Remove and return up to about `limit` entries with due <= now, in (due, ref) order.

        If any entry is due, it returns at least one. With several runs, the bound is the least of
        their m-th keys: all entries at or below it come before all others, so the slice is exact
        without merging the runs completely.
        """
        if self._few and self._few[0][0] <= now_ms:
            self._pack()
        if self._pending and self._pending_min <= now_ms:
            self._seal()
        if len(self._runs) > RUNS_MAX:
            self._compact()
        alone = self._take_alone(now_ms, limit)
        if alone is not None:
            return alone
        ends = [int(np.searchsorted(run.due_ms, now_ms, side="right")) for run in self._runs]
        if sum(ends) > limit:
            ends = self._bounded(ends, max(limit // len(self._runs), 1))
        parts = [
            Entries(*(column[:end] for column in run))
            for run, end in zip(self._runs, ends, strict=True)
            if end
        ]
        self._runs = [
            Entries(*(column[end:] for column in run)) if end else run
            for run, end in zip(self._runs, ends, strict=True)
            if end < run.count
        ]
        if not parts:
            return NO_ENTRIES
        return parts[0] if len(parts) == 1 else sort_entries(join_entries(parts))

    def _take_alone(self, now_ms: int, limit: int) -> Entries | None:
        """The next entries if one run has all of them (frames that came in order), or None."""
        if not self._runs:
            return None
        heads = [(int(run.due_ms[0]), int(run.refs[0])) for run in self._runs]
        first = min(range(len(heads)), key=heads.__getitem__)
        run = self._runs[first]
        end = min(int(np.searchsorted(run.due_ms, now_ms, side="right")), limit)
        if end == 0:
            return None
        last = (int(run.due_ms[end - 1]), int(run.refs[end - 1]))
        if any(head < last for at, head in enumerate(heads) if at != first):
            return None
        if end == run.count:
            # Usually the columns are those of one frame: returned unchanged, the caller can
            # recognise them.
            return self._runs.pop(first)
        self._runs[first] = Entries(*(column[end:] for column in run))
        return Entries(*(column[:end] for column in run))

    def _bounded(self, ends: list[int], m: int) -> list[int]:
        keys = [
            (int(run.due_ms[m - 1]), int(run.refs[m - 1]))
            for run, end in zip(self._runs, ends, strict=True)
            if end >= m
        ]
        if not keys:
            return ends
        due, ref = min(keys)
        out = []
        for run, end in zip(self._runs, ends, strict=True):
            low = int(np.searchsorted(run.due_ms[:end], due, side="left"))
            high = int(np.searchsorted(run.due_ms[:end], due, side="right"))
            out.append(low + int(np.searchsorted(run.refs[low:high], ref, side="right")))
        return out

    def _seal(self) -> None:
        self._runs.append(sort_entries(join_entries(self._pending)))
        self._pending = []
        self._pending_count = 0
        self._pending_min = _REF_MAX

    def _compact(self) -> None:
        """Merge the small runs; large ones stay, since sorting them again would block the loop."""
        small = [run for run in self._runs if run.count < SEAL_ENTRIES]
        if len(small) > 1:
            self._runs = [run for run in self._runs if run.count >= SEAL_ENTRIES]
            self._runs.append(sort_entries(join_entries(small)))
