"""The far tier: messages of any number of hours beyond the next 35, in few files.

A folder per hour cannot carry years: one flush of the tails would touch nearly all of them. Rows
of far hours are written as sorted runs (sorted_run.py, run_stack.py) instead. Rows keep their hour
and row number, so refs mean the same here and there; when an hour comes near, its rows are read
from all runs and appended to a folder of its own (hour_split.py). States of far rows are few
(cancelled, moved, replaced): newest in memory, then in runs, a stack for each group.

The structure is a log-structured merge tree (O'Neil et al., 1996) with tiered compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from delaylog.storage.columns.gather import scatter_back
from delaylog.storage.columns.questions import Mask, distinct, some
from delaylog.storage.columns.whole_rows import put_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.far.far_pile import FarBlock, FarPile, key_cuts, sorted_part
from delaylog.storage.hours.far.run_merge import Keep, merge, stack_runs
from delaylog.storage.hours.far.run_stack import MERGED_SETS_MAX, OpenRuns, RunSet, RunStack
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, hour_key, run_size, write_run
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    NO_TAG,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    RowArray,
    StateArray,
)
from delaylog.storage.work import Work

OPEN_RUNS_MAX: Final = 24
"""Runs whose files stay open."""
FLUSHED_RUN_BYTES: Final = 16 << 20
"""Of the pile that becomes one run: about three times as much memory is needed to sort it."""
STATE_BYTES_EACH: Final = 200
"""Memory of a changed state until it is in a run: an entry of a dict and its bytes."""
_KEPT_ROWS: Final = 512
"""Rows that are looked for in one slice of a merge of states."""
_DEAD_ROWS_MIN: Final = 65_536

StateDict = dict[int, bytes]


class FarTier:
    """Everything about rows in far hours."""

    def __init__(self, fs: FileSystem, folder: str, *, open_runs_max: int = OPEN_RUNS_MAX) -> None:
        self._fs = fs
        self.folder = folder
        self.pile = FarPile()
        self._open = OpenRuns(fs, folder, open_runs_max)
        self.rows = RunStack(INDEX_ENTRY, self._open)
        self.states: dict[int, RunStack] = {}
        self._changed: dict[int, StateDict] = {}
        self._writing: dict[int, StateDict] = {}
        self._next_number = 1
        self._in_flight: set[int] = set()
        """Numbers of runs that are being written, or read beside the loop."""
        self.frozen = False
        """A checkpoint is being taken: no merge begins, since it could mix rows from before and
        after its position.
        """
        self._merging: set[RunStack] = set()
        self._surplus_left = 0
        """Surplus (see `_surplus`) that the last merge could not drop."""
        self._shed_key = 0
        """Merges drop keys below it, see `shed_below`."""
        self._rewriting: set[int] = set()
        """Numbers of the sets of rows that `rewrite` is about."""
        self._replaced: set[int] = set()
        """Numbers of their runs."""
        self.splitting: int | None = None
        """The hour that is being copied to a folder. Its states stay until it has left: the folder
        may have rows that a merge has dropped meanwhile.
        """

    # ------------------------------------------------------------------ rows

    def read_rows(self, keys: Int64Array) -> RowArray:
        """Copies of the rows with these keys; one that was compacted away is a tombstone."""
        out = np.zeros(len(keys), INDEX_ENTRY)
        left = self.pile.fill_rows(out, np.arange(len(keys)), keys)
        left = self.rows.fill_rows(out, left, keys)
        if len(left):
            put_rows(out, left, tombstones(keys[left] & INDEX_MASK))
        return out

    def records(self, keys: Int64Array, rows: RowArray) -> bytes:
        """The records of `rows`, which `read_rows` gave in the same turn, one after another."""
        parts: list[tuple[Int64Array, bytes]] = []
        left = self.pile.fill_records(parts, np.arange(len(keys)), keys, rows)
        left = self.rows.fill_records(parts, left, keys, rows)
        if some(rows["size"][left]):
            raise CorruptionError("records are missing", path=self.folder, position=0)
        parts.append((left, b""))
        sizes = rows["size"].astype(np.int64)
        return scatter_back([data for _, data in parts], [at for at, _ in parts], sizes)

    # ------------------------------------------------------------------ states

    def get_states(self, keys: Int64Array, group: int) -> StateArray:
        """Copies of state entries, without their seals."""
        out = np.zeros(len(keys), STATE_ENTRY)
        left = np.arange(len(keys))
        for changed in (self._changed.get(group), self._writing.get(group)):
            if changed and len(left):
                found = [changed.get(key) for key in keys[left].tolist()]
                here = np.array([entry is not None for entry in found], np.bool_)
                if some(here):
                    raw = b"".join([entry for entry in found if entry is not None])
                    put_rows(out, left[here], np.frombuffer(raw, STATE_ENTRY))
                    left = left[~here]
        stack = self.states.get(group)
        if stack is not None and len(left):
            stack.fill_rows(out, left, keys)
        if some(broken(out)):
            raise CorruptionError("a broken state", path=self.folder, position=0)
        out["seal"] = 0
        return out

    def put_states(self, keys: Int64Array, entries: StateArray, group: int) -> None:
        """Store sealed entries, one for all or one each, in memory."""
        changed = self._changed.setdefault(group, {})
        raw = entries.tobytes()
        if len(entries) == 1:
            changed.update(dict.fromkeys(keys.tolist(), raw))
            return
        size = STATE_ENTRY_SIZE
        cut = [raw[at : at + size] for at in range(0, len(raw), size)]
        changed.update(zip(keys.tolist(), cut, strict=True))

    def untouched(self, group: int) -> bool:
        """Whether no far row has a state in a group."""
        return not (self._changed.get(group) or self._writing.get(group) or self.states.get(group))

    @property
    def groups(self) -> set[int]:
        """Groups in which a far row may have a state."""
        return self._changed.keys() | self._writing.keys() | self.states.keys()

    @property
    def changed_bytes(self) -> int:
        """Memory of states that are not in a run yet."""
        return STATE_BYTES_EACH * sum(len(changed) for changed in self._changed.values())

    # ------------------------------------------------------------------ flushing

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        self._in_flight.add(number)
        return number

    def flush(self, upto: int) -> Work:
        """Write rows of frames below `upto`, which must be durable, as a set of runs."""
        blocks = self.pile.take(upto)
        if not blocks:
            return
        box, numbers = list[RunFacts](), list[int]()
        positions = (
            min(int(block.positions.min()) for block in blocks),
            max(int(block.positions.max()) for block in blocks),
        )
        try:
            for first, end in key_cuts(blocks, FLUSHED_RUN_BYTES):
                numbers.append(self._take_number())
                yield partial(self._write_part, blocks, (first, end), positions, numbers[-1], box)
        except BaseException:
            self.pile.thaw(blocks)
            raise
        finally:
            self._in_flight.difference_update(numbers)
        self.rows.push(box)
        self.pile.drop(blocks)

    def _write_part(
        self,
        blocks: list[FarBlock],
        part: tuple[int, int],
        positions: tuple[int, int],
        number: int,
        box: list[RunFacts],
    ) -> None:
        content = sorted_part(blocks, *part)
        self._fs.mkdir(self.folder)
        path = self._open.path(number)
        box.append(write_run(self._fs, path, number, content, positions))

    def flush_states(self, until_committed: Callable[[], Work] | None = None) -> Work:
        """Write changed states as runs, behind the frames that explain them."""
        if not any(self._changed.values()):
            return
        assert not self._writing, "one flush of states at a time"
        self._writing, self._changed = self._changed, {}
        box: list[tuple[int, RunFacts]] = []
        numbers = {group: self._take_number() for group in self._writing}

        def write() -> None:
            self._fs.mkdir(self.folder)
            for group, changed in self._writing.items():
                keys = np.fromiter(changed, np.int64, len(changed))
                rows = np.frombuffer(b"".join(changed.values()), STATE_ENTRY)
                order = np.argsort(keys)
                number = numbers[group]
                path = self._open.path(number)
                rows = rows[order]
                content = RunRows(keys[order], rows, b"")
                box.append((group, write_run(self._fs, path, number, content, (0, 0))))

        try:
            if until_committed is not None:
                yield from until_committed()
            yield write
        except BaseException:
            for group, older in self._writing.items():
                self._changed[group] = older | self._changed.get(group, {})
            self._writing = {}
            raise
        finally:
            self._in_flight.difference_update(numbers.values())
        for group, facts in box:
            self._stack(group).push([facts])
        self._writing = {}

    def _stack(self, group: int) -> RunStack:
        stack = self.states.get(group)
        if stack is None:
            stack = self.states[group] = RunStack(STATE_ENTRY, self._open)
        return stack

    def sync(self) -> Work:
        """Make the names of new runs durable; their bytes are since they were written."""
        if self._fs.exists(self.folder):
            yield lambda: self._fs.sync_folder(self.folder)

    # ------------------------------------------------------------------ merging

    def merge_due(self, counts: HourTable) -> bool:
        """Whether sets are to be merged."""
        if self.frozen:
            return False
        free = [stack for stack in self._stacks() if stack not in self._merging]
        return (self.rows in free and self._mostly_dead(counts)) or any(
            self._next_merge(stack) is not None for stack in free
        )

    def rewrite(self) -> bool:
        """Have the next merges write all rows anew, so that `keep` is asked about each of them.

        False while a merge goes on, which may have asked about some of them already.
        """
        if self.rows in self._merging:
            return False
        self._rewriting = {one.number for one in self.rows.sets}
        self._replaced = {run.number for run in self.rows.runs()}
        return True

    @property
    def rewritten(self) -> bool:
        """Whether no file is left of the runs that there were when `rewrite` was called."""
        return not any(self._fs.exists(self._open.path(number)) for number in self._replaced)

    def may_hold(self, position: int, last_hour: int) -> bool:
        """Whether runs may hold rows of frames below `position` that were due by `last_hour`.

        Rows stay in their runs after their hours have left, until the runs are merged.
        """
        end = hour_key(last_hour + 1)
        return any(
            run.position_first < position and run.first_key < end for run in self.rows.runs()
        )

    def shed_below(self, hour: int) -> bool:
        """Whether nothing is left of hours before `hour`, all of which have folders by now.

        If something is left, the next merges drop it; with 0 it may stay again. An hour that
        becomes far once more counts its rows from 1, and must not find rows of its earlier life.
        """
        self._shed_key = key = hour_key(hour)
        if not key:
            return True
        changes = (*self._changed.values(), *self._writing.values())
        if any(self._sheds(one) for stack in self._stacks() for one in stack.sets) or any(
            each < key for changed in changes for each in changed
        ):
            return False
        self._shed_key = 0
        return True

    def _sheds(self, one: RunSet) -> bool:
        return any(run.first_key < self._shed_key for run in one.runs)

    def _next_merge(self, stack: RunStack) -> slice | None:
        """Neighbouring sets that are to be merged."""
        numbers = self._rewriting if stack is self.rows else ()
        at = [k for k, one in enumerate(stack.sets) if one.number in numbers or self._sheds(one)]
        if at:
            return slice(at[0], min(at[-1] + 1, at[0] + MERGED_SETS_MAX))
        return stack.crowded()

    def _mostly_dead(self, counts: HourTable) -> bool:
        surplus = self._surplus(counts)
        # A merge drops rows of hours that have left, and of ended rows those that `keep` releases.
        # `_surplus_left` is what the last one had to keep: without it merges would repeat.
        self._surplus_left = min(self._surplus_left, surplus)
        return surplus > 2 * self._surplus_left

    def _surplus(self, counts: HourTable) -> int:
        """Rows beyond twice the living ones, and beyond what is not worth a merge."""
        return max(self.rows.rows - 2 * counts.far_living - _DEAD_ROWS_MIN, 0)

    def merge_work(self, counts: HourTable, keep: Keep | None = None) -> Work:
        """Merge what is to be merged; rows of hours that are near by now are left out."""
        # A checkpoint may have begun since this was asked for.
        if self.rows not in self._merging and not self.frozen:
            dead = self._mostly_dead(counts)
            picked = self._next_merge(self.rows)
            if dead:
                picked = slice(0, min(len(self.rows.sets), MERGED_SETS_MAX))
            yield from self._merge(self.rows, picked, counts, keep)
            if dead:
                self._surplus_left = self._surplus(counts)
        for stack in list(self.states.values()):
            if stack not in self._merging:
                yield from self._merge(stack, self._next_merge(stack), counts, self._have_rows)

    def merge_flushed_states(self, counts: HourTable) -> Work:
        """Merge what flushes wrote of states. It is quick: nobody is asked what is still needed."""
        for stack in list(self.states.values()):
            if stack not in self._merging:
                yield from self._merge(stack, stack.flushed(), counts, None)

    def _merge(
        self, stack: RunStack, picked: slice | None, counts: HourTable, keep: Keep | None
    ) -> Work:
        """Merge the sets `picked`; with `keep` also whatever else of the stack is to be merged."""
        self._merging.add(stack)
        try:
            while picked is not None and not self.frozen:
                sets = stack.sets[picked]
                numbers = [run.number for run in stack_runs(sets)]
                self._in_flight.update(numbers)

                def number(numbers: list[int] = numbers) -> int:
                    numbers.append(self._take_number())
                    return numbers[-1]

                try:
                    yield from merge(
                        self._open,
                        stack,
                        sets,
                        first_key=hour_key(counts.far_from),
                        number=number,
                        keep=keep,
                    )
                finally:
                    self._in_flight.difference_update(numbers)
                self._open.drop(run.number for run in stack_runs(sets))
                picked = self._next_merge(stack) if keep is not None else None
        finally:
            self._merging.discard(stack)

    def _have_rows(self, keys: Int64Array, _states: RowArray) -> Generator[None, None, Mask]:
        """Which keys name rows that were not dropped: states of others are not needed."""
        kept = np.ones(len(keys), np.bool_)
        for first in range(0, len(keys), _KEPT_ROWS):
            part = slice(first, first + _KEPT_ROWS)
            kept[part] = self.read_rows(keys[part])["epoch_tag"] != NO_TAG
            if self.splitting is not None:
                kept[part] |= keys[part] >> INDEX_BITS == self.splitting
            yield None
        return kept

    # ------------------------------------------------------------------ an hour leaves

    def runs_of(self, hour: int) -> list[RunFacts]:
        """Runs that may hold rows of an hour."""
        first, last = hour_key(hour), hour_key(hour + 1) - 1
        runs = self.rows.runs()
        return [run for run in runs if run.first_key <= last and run.last_key >= first]

    @contextmanager
    def pinned(self, runs: list[RunFacts]) -> Iterator[None]:
        """Keep the files of runs while a job reads them."""
        numbers = {run.number for run in runs} - self._in_flight
        self._in_flight |= numbers
        try:
            yield
        finally:
            self._in_flight -= numbers

    def leave(self, hour: int) -> None:
        """Hours up to `hour` have folders of their own: runs that hold nothing else are dropped."""
        for stack in (self.rows, *self.states.values()):
            before = stack.runs()
            stack.drop_below(hour_key(hour + 1))
            self._open.drop({run.number for run in before} - {run.number for run in stack.runs()})

    def hour_states(self, hour: int) -> dict[int, tuple[Int64Array, StateArray]]:
        """By group: row numbers of an hour that have a state, and their sealed entries."""
        out = {}
        first, last = hour_key(hour), hour_key(hour + 1) - 1
        for group in self.groups:
            parts = []
            for changed in (self._changed.get(group, {}), self._writing.get(group, {})):
                keys = np.fromiter(changed, np.int64, len(changed))
                parts.append(keys[(keys >= first) & (keys <= last)])
            stack = self.states.get(group)
            for facts in stack.runs() if stack is not None else ():
                if facts.first_key <= last and facts.last_key >= first:
                    run = self._open.get(facts, STATE_ENTRY)
                    parts.append(run.keys_between(*run.span(first, last)))
            found = distinct(np.concatenate(parts))
            if len(found):
                out[group] = (found & INDEX_MASK, self.get_states(found, group))
        return out

    # ------------------------------------------------------------------ checkpoints

    def saved(self, position: int) -> dict[str, Any]:
        """What a checkpoint at `position` says: rows of later frames come again by replay."""
        return {
            "next": self._next_number,
            "rows": self.rows.saved(wanted=lambda run: run.position_last < position),
            "states": {group: stack.saved() for group, stack in self.states.items()},
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Stand where a checkpoint stood; files of later runs are removed."""
        self._next_number = saved["next"]
        self.rows.restore(saved["rows"])
        for group, sets in saved["states"].items():
            self._stack(group).restore(sets)
        if self._fs.exists(self.folder):
            self._remove_others(named_runs(saved), None)

    def collect(self, saved: list[dict[str, Any]]) -> Work:
        """Remove files that neither the tier nor a kept checkpoint needs."""
        if not self._fs.exists(self.folder):
            return
        needed = {f"{run.number}.run" for stack in self._stacks() for run in stack.runs()}
        needed |= {f"{number}.run" for number in self._in_flight}
        for one in saved:
            needed |= named_runs(one)
        below = self._next_number
        yield lambda: self._remove_others(needed, below)

    def _remove_others(self, needed: set[str], below: int | None) -> None:
        """Remove files that are not needed; those with numbers from `below` on may be."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            old = below is None or not number.isdigit() or int(number) < below
            if name not in needed and old and name.removesuffix(".tmp") not in needed:
                self._fs.unlink(f"{self.folder}/{name}")

    def _stacks(self) -> list[RunStack]:
        return [self.rows, *self.states.values()]

    def close(self) -> None:
        """Close every file."""
        self._open.close()


def named_runs(saved: dict[str, Any]) -> set[str]:
    """Names of the files that a checkpoint needs of the tier."""
    sets = [*saved["rows"], *(one for sets in saved["states"].values() for one in sets)]
    return {f"{facts[0]}.run" for _, runs in sets for facts in runs}


def run_sizes(saved: dict[str, Any]) -> dict[str, int]:
    """The same with the sizes of the files."""
    kinds = [(INDEX_ENTRY, saved["rows"])]
    kinds += [(STATE_ENTRY, sets) for sets in saved["states"].values()]
    return {
        f"{facts[0]}.run": run_size(RunFacts(*facts), dtype)
        for dtype, sets in kinds
        for _, runs in sets
        for facts in runs
    }


def tombstones(indexes: Int64Array) -> RowArray:
    """Rows that were compacted away: no ref has their tag, no chain names them."""
    rows = np.zeros(len(indexes), INDEX_ENTRY)
    rows["global_index"] = indexes
    rows["epoch_tag"] = NO_TAG
    return rows
