"""The far tier: messages of any number of hours beyond the next 35, in few files.

One folder for each hour does not scale to years: one flush of the tails would write to nearly all
of them. Rows of far hours are written as sorted runs (sorted_run.py, run_stack.py) instead. Rows
keep their hour and row number, so a ref stays valid when its hour leaves the tier: once an hour
comes near, its rows are read from all runs and appended to a new folder (far_border.py).

The structure is a log-structured merge tree (O'Neil et al., 1996) with tiered compaction. Merges
keep the number of runs small, drop rows that are not needed any more, drop rows of hours that have
folders, and rewrite all rows after a call of `rewrite`. A run that a job writes, merges or reads
may be missing in the newest checkpoint: while a job uses its file, `remove_others` keeps it.

Few far rows have a state: those that were cancelled, moved or replaced. A changed state is an entry
of a dict until a flush writes all changed states as runs, with a stack for each group.

`FarHour` is for code that walks through the rows of hours: lists, counts, jobs, rebuilds. It has
the read methods of `DelayHour` except those for chains: a far hour is scanned. Every read goes
through the store, so it stays correct when the hour gets a folder meanwhile. A row is found by its
number at any time, but its `offset` is that of the run it was read from: a merge or a split moves
the records. So records are read in the same turn as their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from delaylog.storage.columns import Mask, copy_rows, distinct, put_rows, scatter_back, some
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.far.run_stack import (
    MERGED_SETS_MAX,
    Keep,
    OpenRuns,
    RunSet,
    RunStack,
    merge,
    stack_runs,
)
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, hour_key, write_run
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.hours.state_seal import broken
from delaylog.storage.hours.tails import FarBlock, FarPile, key_cuts, sorted_part
from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    NO_TAG,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    RowArray,
    StateArray,
    head_sizes,
)
from delaylog.storage.work import Work

# ------------------------------------------------------------------------- numbers of run files


class RunNumbers:
    """The files of the far tier's folder, by number."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs = fs
        self.folder = folder
        self.next_number = 1
        self._users: Counter[int] = Counter()
        """How many works write or read a run by jobs: a merge and a split may use the same one."""

    def make_folder(self) -> None:
        """Create the folder unless it exists."""
        self._fs.mkdir(self.folder)

    @property
    def exist(self) -> bool:
        """Whether the folder exists."""
        return self._fs.exists(self.folder)

    def take_number(self) -> int:
        """A number for a new run, in use until it is released."""
        number = self.next_number
        self._users[number] += 1
        # Last: a number below the next one is known to be in use, on any thread.
        self.next_number += 1
        return number

    def claim(self, numbers: Iterable[int]) -> None:
        """Mark the files of these runs as in use."""
        self._users.update(numbers)

    def release(self, numbers: Iterable[int]) -> None:
        """End a use of the files of these runs."""
        for number in numbers:
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number]

    @contextmanager
    def pinned(self, numbers: Iterable[int]) -> Iterator[None]:
        """Keep the files of runs while a job reads them."""
        mine = list(numbers)
        self.claim(mine)
        try:
            yield
        finally:
            self.release(mine)

    def in_use(self) -> set[str]:
        """Names of the files that are in use."""
        return {f"{number}.run" for number in list(self._users)}

    def remove_from(self, first: int) -> None:
        """Remove files with numbers from `first` on, which new runs will have."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            if number.isdigit() and int(number) >= first:
                self._fs.unlink(f"{self.folder}/{name}")

    def remove_others(self, needed: set[str], below: int) -> None:
        """Remove all files but those `needed` and those with numbers from `below` on."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            old = not number.isdigit() or int(number) < below
            if name not in needed and old and name.removesuffix(".tmp") not in needed:
                self._fs.unlink(f"{self.folder}/{name}")


# --------------------------------------------------------------------------- states of far rows

STATE_BYTES_EACH: Final = 200
"""Memory of a changed state until it is in a run: an entry of a dict and its bytes."""

StateDict = dict[int, bytes]


class FarStates:
    """States of far rows, by group and key."""

    def __init__(self, files: RunNumbers, open_runs: OpenRuns) -> None:
        self._files = files
        self._open = open_runs
        self.stacks: dict[int, RunStack] = {}
        self._changed: dict[int, StateDict] = {}
        self._writing: dict[int, StateDict] = {}

    def get(self, keys: Int64Array, group: int) -> StateArray:
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
        stack = self.stacks.get(group)
        if stack is not None and len(left):
            stack.fill_rows(out, left, keys)
        if some(broken(out)):
            raise CorruptionError("a broken state", path=self._files.folder, position=0)
        out["seal"] = 0
        return out

    def put(self, keys: Int64Array, entries: StateArray, group: int) -> None:
        """Store sealed entries in memory: one entry for all keys, or one for each."""
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
        return not (self._changed.get(group) or self._writing.get(group) or self.stacks.get(group))

    @property
    def changed_bytes(self) -> int:
        """Memory of states that are not in a run yet."""
        return STATE_BYTES_EACH * sum(len(changed) for changed in self._changed.values())

    def changed_below(self, key: int) -> bool:
        """Whether the state of a key below `key` is not in a run yet."""
        changes = (*self._changed.values(), *self._writing.values())
        return any(each < key for changed in changes for each in changed)

    def of_hour(self, hour: int) -> dict[int, tuple[Int64Array, StateArray]]:
        """By group: the row numbers of an hour that have a state, and their entries."""
        out = {}
        first, last = hour_key(hour), hour_key(hour + 1) - 1
        for group in self._changed.keys() | self._writing.keys() | self.stacks.keys():
            parts = []
            for changed in (self._changed.get(group, {}), self._writing.get(group, {})):
                keys = np.fromiter(changed, np.int64, len(changed))
                parts.append(keys[(keys >= first) & (keys <= last)])
            stack = self.stacks.get(group)
            for facts in stack.runs() if stack is not None else ():
                if facts.first_key <= last and facts.last_key >= first:
                    run = self._open.get(facts, STATE_ENTRY)
                    parts.append(run.keys_between(*run.span(first, last)))
            found = distinct(np.concatenate(parts))
            if len(found):
                out[group] = (found & INDEX_MASK, self.get(found, group))
        return out

    # ------------------------------------------------------------------ flushing

    def flush(self, until_committed: Callable[[], Work] | None = None) -> Work:
        """Write changed states as runs, once the frames that changed them are committed."""
        if not any(self._changed.values()):
            return
        assert not self._writing, "one flush of states at a time"
        self._writing, self._changed = self._changed, {}
        box: list[tuple[int, RunFacts]] = []
        numbers = {group: self._files.take_number() for group in self._writing}

        def write() -> None:
            self._files.make_folder()
            for group, changed in self._writing.items():
                keys = np.fromiter(changed, np.int64, len(changed))
                rows = np.frombuffer(b"".join(changed.values()), STATE_ENTRY)
                order = np.argsort(keys)
                number = numbers[group]
                content = RunRows(keys[order], rows[order], b"")
                path = self._open.path(number)
                box.append((group, write_run(self._open.fs, path, number, content, (0, 0))))

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
            self._files.release(numbers.values())
        for group, facts in box:
            self._stack(group).push([facts])
        self._writing = {}

    def _stack(self, group: int) -> RunStack:
        stack = self.stacks.get(group)
        if stack is None:
            stack = self.stacks[group] = RunStack(STATE_ENTRY, self._open)
        return stack

    def restore(self, saved: dict[int, Any]) -> None:
        """Take over the sets of runs that a checkpoint names, by group."""
        for group, sets in saved.items():
            self._stack(group).restore(sets)

    def all_stacks(self) -> Iterable[RunStack]:
        """The stacks of all groups; a copy, since a flush may add one."""
        return list(self.stacks.values())


# -------------------------------------------------------------- which runs are merged, and when

_KEPT_ROWS: Final = 512
"""Rows that one slice of a merge of states looks up."""
_DEAD_ROWS_MIN: Final = 65_536


class FarMerges:
    """Merges the stacks of the far tier."""

    def __init__(
        self,
        files: RunNumbers,
        open_runs: OpenRuns,
        rows: RunStack,
        states: FarStates,
        *,
        read_rows: Callable[[Int64Array], RowArray],
    ) -> None:
        """`read_rows` reads far rows by key, including those in memory."""
        self._files = files
        self._open = open_runs
        self._rows = rows
        self._states = states
        self._read_rows = read_rows
        self.frozen = False
        """A checkpoint is being taken: no merge begins, and none that runs replaces its runs.

        A merge that begins could mix rows from before and after the checkpoint's position. One that
        runs may have dropped rows that messages left after that position: a start from the
        checkpoint applies these moves again, and needs the rows.
        """
        self.splitting: int | None = None
        """The hour that is being copied to a folder. Its states stay until it has left the far
        tier: the folder may have rows that a merge has dropped meanwhile.
        """
        self._merging: set[RunStack] = set()
        self._surplus_left = 0
        """Surplus (see `_surplus`) that the last merge could not drop."""
        self._shed_key = 0
        """Merges drop keys below this one, see `shed_below`."""
        self._rewriting: set[int] = set()
        """Numbers of the sets of rows that existed when `rewrite` was called."""
        self._replaced: set[int] = set()
        """Numbers of the runs in these sets."""

    def due(self, counts: HourTable) -> bool:
        """Whether any sets are to be merged now."""
        if self.frozen:
            return False
        free = [stack for stack in self._stacks() if stack not in self._merging]
        return (self._rows in free and self._mostly_dead(counts)) or any(
            self._next_merge(stack) is not None for stack in free
        )

    def work(self, counts: HourTable, keep: Keep | None = None) -> Work:
        """Run the merges that are due; rows of hours that are near by now are left out.

        `keep` tells which rows are still needed.
        """
        # A checkpoint may have begun since `due` was true.
        if self._rows not in self._merging and not self.frozen:
            dead = self._mostly_dead(counts)
            picked = self._next_merge(self._rows)
            if dead:
                picked = slice(0, min(len(self._rows.sets), MERGED_SETS_MAX))
            yield from self._merge(self._rows, picked, counts, keep)
            if dead:
                self._surplus_left = self._surplus(counts)
        for stack in self._states.all_stacks():
            if stack not in self._merging:
                yield from self._merge(stack, self._next_merge(stack), counts, self._have_rows)

    def flushed_states(self, counts: HourTable) -> Work:
        """Merge the states that flushes wrote. It is quick: it does not check which are needed."""
        for stack in self._states.all_stacks():
            if stack not in self._merging:
                yield from self._merge(stack, stack.flushed(), counts, None)

    # ------------------------------------------------------------------ rewriting, shedding

    def rewrite(self) -> bool:
        """Have the next merges rewrite all rows, so that `keep` decides about each of them.

        Returns False while a merge is running: it may have decided about some of them already.
        """
        if self._rows in self._merging:
            return False
        self._rewriting = {one.number for one in self._rows.sets}
        self._replaced = {run.number for run in self._rows.runs()}
        return True

    @property
    def rewritten(self) -> bool:
        """Whether the files of all runs that existed when `rewrite` was called are removed."""
        fs = self._open.fs
        return not any(fs.exists(self._open.path(number)) for number in self._replaced)

    def shed_below(self, hour: int) -> bool:
        """Whether the tier has no rows or states left of hours before `hour`, which have folders.

        If it has some, the next merges drop them; a call with 0 cancels this. An hour that becomes
        far again numbers its rows from 1, and must not find rows from when it was far before.
        """
        self._shed_key = key = hour_key(hour)
        if not key:
            return True
        sets = [one for stack in self._stacks() for one in stack.sets]
        if any(self._sheds(one) for one in sets) or self._states.changed_below(key):
            return False
        self._shed_key = 0
        return True

    def _sheds(self, one: RunSet) -> bool:
        return any(run.first_key < self._shed_key for run in one.runs)

    # ------------------------------------------------------------------ choosing

    def _stacks(self) -> list[RunStack]:
        return [self._rows, *self._states.all_stacks()]

    def _next_merge(self, stack: RunStack) -> slice | None:
        """Neighbouring sets that are to be merged."""
        numbers = self._rewriting if stack is self._rows else ()
        at = [k for k, one in enumerate(stack.sets) if one.number in numbers or self._sheds(one)]
        if at:
            return slice(at[0], min(at[-1] + 1, at[0] + MERGED_SETS_MAX))
        return stack.crowded()

    def _mostly_dead(self, counts: HourTable) -> bool:
        surplus = self._surplus(counts)
        # A merge drops rows of hours that have left the far tier, and ended rows that `keep`
        # releases. `_surplus_left` is the surplus that the last merge had to keep: without it,
        # merges would repeat.
        self._surplus_left = min(self._surplus_left, surplus)
        return surplus > 2 * self._surplus_left

    def _surplus(self, counts: HourTable) -> int:
        """Number of rows above twice the living ones, minus a minimum that is worth a merge."""
        return max(self._rows.rows - 2 * counts.far_living - _DEAD_ROWS_MIN, 0)

    # ------------------------------------------------------------------ merging

    def _merge(
        self, stack: RunStack, picked: slice | None, counts: HourTable, keep: Keep | None
    ) -> Work:
        """Merge the sets `picked`; with `keep`, then all other sets of the stack that are due."""
        self._merging.add(stack)
        try:
            while picked is not None and not self.frozen:
                sets = stack.sets[picked]
                numbers = [run.number for run in stack_runs(sets)]
                self._files.claim(numbers)

                def number(numbers: list[int] = numbers) -> int:
                    numbers.append(self._files.take_number())
                    return numbers[-1]

                try:
                    runs = yield from merge(
                        self._open,
                        stack,
                        sets,
                        first_key=hour_key(counts.far_from),
                        number=number,
                        keep=keep,
                    )
                    while self.frozen:
                        yield 0.001
                    stack.replace(sets, runs)
                finally:
                    self._files.release(numbers)
                self._open.drop(run.number for run in stack_runs(sets))
                picked = self._next_merge(stack) if keep is not None else None
        finally:
            self._merging.discard(stack)

    def _have_rows(self, keys: Int64Array, _states: RowArray) -> Generator[None, None, Mask]:
        """Which keys name rows that were not dropped: states of dropped rows are not needed."""
        kept = np.ones(len(keys), np.bool_)
        for first in range(0, len(keys), _KEPT_ROWS):
            part = slice(first, first + _KEPT_ROWS)
            kept[part] = self._read_rows(keys[part])["epoch_tag"] != NO_TAG
            if self.splitting is not None:
                kept[part] |= keys[part] >> INDEX_BITS == self.splitting
            yield None
        return kept


# ------------------------------------------------------------------------------------- the tier

OPEN_RUNS_MAX: Final = 24
"""Runs whose files stay open."""
FLUSHED_RUN_BYTES: Final = 16 << 20
"""Bytes of the pile that become one run: sorting them takes about three times as much memory."""


class FarTier:
    """Rows and states of all far hours."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.fs = fs
        self.folder = folder
        self.pile = FarPile()
        self.files = RunNumbers(fs, folder)
        self._open = OpenRuns(fs, folder, OPEN_RUNS_MAX)
        self.rows = RunStack(INDEX_ENTRY, self._open)
        self.states = FarStates(self.files, self._open)
        self.merges = FarMerges(
            self.files,
            self._open,
            self.rows,
            self.states,
            read_rows=partial(_read_rows, self.pile, self.rows),
        )

    # ------------------------------------------------------------------ rows

    def read_rows(self, keys: Int64Array) -> RowArray:
        """Copies of the rows with these keys; a row that was compacted away is a tombstone."""
        return _read_rows(self.pile, self.rows, keys)

    def records(self, keys: Int64Array, rows: RowArray, *, checked: bool = True) -> bytes:
        """The records of `rows`, one after another; `read_rows` returned them in the same turn."""
        parts: list[tuple[Int64Array, bytes]] = []
        left = self.pile.fill_records(parts, np.arange(len(keys)), keys, rows)
        left = self.rows.fill_records(parts, left, keys, rows, checked=checked)
        if some(rows["size"][left]):
            raise CorruptionError("records are missing", path=self.folder, position=0)
        parts.append((left, b""))
        sizes = rows["size"].astype(np.int64)
        return scatter_back([data for _, data in parts], [at for at, _ in parts], sizes)

    # ------------------------------------------------------------------ flushing

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
                numbers.append(self.files.take_number())
                yield partial(self._write_part, blocks, (first, end), positions, numbers[-1], box)
        except BaseException:
            self.pile.thaw(blocks)
            raise
        finally:
            self.files.release(numbers)
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
        self.files.make_folder()
        path = self._open.path(number)
        box.append(write_run(self.fs, path, number, content, positions))

    def sync(self) -> Work:
        """Make the names of new runs durable; their bytes are durable already."""
        if self.files.exist:
            yield lambda: self.fs.sync_folder(self.folder)

    def may_hold(self, position: int, last_hour: int) -> bool:
        """Whether runs may have rows of frames below `position` that were due by `last_hour`.

        Rows stay in their runs after their hours have left the tier, until the runs are merged.
        """
        end = hour_key(last_hour + 1)
        return any(
            run.position_first < position and run.first_key < end for run in self.rows.runs()
        )

    # ------------------------------------------------------------------ an hour leaves

    def runs_of(self, hour: int) -> list[RunFacts]:
        """Runs that may have rows of an hour."""
        first, last = hour_key(hour), hour_key(hour + 1) - 1
        runs = self.rows.runs()
        return [run for run in runs if run.first_key <= last and run.last_key >= first]

    def leave(self, hour: int) -> None:
        """Drop runs that have only rows of hours up to `hour`: these have folders now."""
        for stack in self._stacks():
            before = stack.runs()
            stack.drop_below(hour_key(hour + 1))
            self._open.drop({run.number for run in before} - {run.number for run in stack.runs()})

    # ------------------------------------------------------------------ checkpoints

    def saved(self, position: int) -> dict[str, Any]:
        """The state for a checkpoint at `position`, without runs that have rows of later frames.

        Replay adds these rows again.
        """
        return {
            "next": self.files.next_number,
            "rows": self.rows.saved(wanted=lambda run: run.position_last < position),
            "states": {group: stack.saved() for group, stack in self.states.stacks.items()},
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the state of a checkpoint, and remove files of later runs.

        Earlier runs stay until a checkpoint collects them: the older kept checkpoint names some.
        """
        self.files.next_number = saved["next"]
        self.rows.restore(saved["rows"])
        self.states.restore(saved["states"])
        if self.files.exist:
            self.files.remove_from(self.files.next_number)

    def collect(self, kept: set[str]) -> Work:
        """Remove files that neither the tier nor a kept checkpoint needs."""
        if not self.files.exist:
            return
        # Read first: a merge takes numbers on the thread that writes its runs.
        below = self.files.next_number
        needed = {f"{run.number}.run" for stack in self._stacks() for run in stack.runs()}
        needed |= self.files.in_use() | kept
        yield lambda: self.files.remove_others(needed, below)

    def _stacks(self) -> list[RunStack]:
        return [self.rows, *self.states.all_stacks()]

    def close(self) -> None:
        """Close every file."""
        self._open.close()


def _read_rows(pile: FarPile, stack: RunStack, keys: Int64Array) -> RowArray:
    out = np.zeros(len(keys), INDEX_ENTRY)
    left = pile.fill_rows(out, np.arange(len(keys)), keys)
    left = stack.fill_rows(out, left, keys)
    if len(left):
        put_rows(out, left, tombstones(keys[left] & INDEX_MASK))
    return out


def tombstones(indexes: Int64Array) -> RowArray:
    """Rows that were compacted away: no ref has their tag, no chain names them."""
    rows = np.zeros(len(indexes), INDEX_ENTRY)
    rows["global_index"] = indexes
    rows["epoch_tag"] = NO_TAG
    return rows


# --------------------------------------------------------------------------------- one far hour

_SCAN_ROWS: Final = 16_384


class Rows(Protocol):
    """The parts of the store of all hours that a far hour needs."""

    counts: HourTable
    far: FarTier

    def rows(self, refs: Int64Array) -> RowArray:
        """The rows of these refs."""

    def records(self, refs: Int64Array, rows: RowArray) -> bytes:
        """Their records, one after another."""

    def get_states(self, refs: Int64Array, group: int) -> StateArray:
        """Their states in a group."""


class FarHour:
    """Reads one hour of the far tier."""

    def __init__(self, store: Rows, hour: int) -> None:
        self._store = store
        self.hour = hour
        self.folder = store.far.folder

    def _refs(self, indexes: Int64Array) -> Int64Array:
        return indexes.astype(np.int64) | self.hour << HOUR_SHIFT

    def read_rows(self, indexes: Int64Array) -> RowArray:
        """Copies of the rows with these numbers; a row that was dropped is a tombstone."""
        return self._store.rows(self._refs(indexes))

    def read_records(self, rows: RowArray) -> bytes:
        """The records of `rows`, which were read in this turn, one after another."""
        return self._store.records(self._refs(rows["global_index"]), rows)

    def read_heads(self, rows: RowArray) -> bytes:
        """Id, key, tags and headers of `rows`, which were read in this turn, one after another."""
        heads = copy_rows(rows)
        heads["size"] = head_sizes(rows)
        return self.read_records(heads)

    def scan_rows(self) -> Iterator[RowArray]:
        """All rows in parts."""
        counts = self._store.counts.get(self.hour)
        last = counts.rows if counts is not None else 0
        for first in range(1, last + 1, _SCAN_ROWS):
            yield self.read_rows(np.arange(first, min(first + _SCAN_ROWS, last + 1)))

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Do nothing: merges and splits do not wait, since readers read rows again."""
        yield

    def unchecked_records(self, _rows: RowArray) -> list[int]:
        """Return an empty list: blocks are checked as they are read."""
        return []

    def check_records(self, number: int) -> None:
        """Do nothing; see `unchecked_records`."""

    def states(self, group: int) -> FarHourStates:
        """The states of a group."""
        return FarHourStates(self._store, self.hour, group)


class FarHourStates:
    """States of one far hour in one group."""

    def __init__(self, store: Rows, hour: int, group: int) -> None:
        self._store = store
        self._hour = hour
        self._group = group

    @property
    def absent(self) -> bool:
        """Whether no row of the hour can have a state."""
        far = self._store.far
        return self._store.counts.is_far(self._hour) and far.states.untouched(self._group)

    def get(self, indexes: Int64Array) -> StateArray:
        """Copies of the states of rows."""
        refs = indexes.astype(np.int64) | self._hour << HOUR_SHIFT
        return self._store.get_states(refs, self._group)
