"""The far tier: messages of any number of hours beyond the next 35, in few files.

One folder for each hour does not scale to years: one flush of the tails would write to nearly all
of them. Rows of far hours are written as sorted runs (sorted_run.py, run_stack.py) instead. Rows
keep their hour and row number, so a ref stays valid when its hour leaves the tier: once an hour
comes near, its rows are read from all runs and appended to a new folder (far_border.py). Their
states are in far_states.py.

The structure is a log-structured merge tree (O'Neil et al., 1996) with tiered compaction.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from delaylog.storage.columns.gather import scatter_back
from delaylog.storage.columns.questions import some
from delaylog.storage.columns.whole_rows import put_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.far.far_merges import FarMerges
from delaylog.storage.hours.far.far_pile import FarBlock, FarPile, key_cuts, sorted_part
from delaylog.storage.hours.far.far_states import FarStates
from delaylog.storage.hours.far.run_numbers import RunNumbers
from delaylog.storage.hours.far.run_stack import OpenRuns, RunStack
from delaylog.storage.hours.far.sorted_run import RunFacts, hour_key, write_run
from delaylog.storage.layout import (
    INDEX_ENTRY,
    INDEX_MASK,
    NO_TAG,
    Int64Array,
    RowArray,
)
from delaylog.storage.work import Work

OPEN_RUNS_MAX: Final = 24
"""Runs whose files stay open."""
FLUSHED_RUN_BYTES: Final = 16 << 20
"""Bytes of the pile that become one run: sorting them takes about three times as much memory."""


class FarTier:
    """Rows and states of all far hours."""

    def __init__(self, fs: FileSystem, folder: str, *, open_runs_max: int = OPEN_RUNS_MAX) -> None:
        self.fs = fs
        self.folder = folder
        self.pile = FarPile()
        self.files = RunNumbers(fs, folder)
        self._open = OpenRuns(fs, folder, open_runs_max)
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

    def records(self, keys: Int64Array, rows: RowArray) -> bytes:
        """The records of `rows`, one after another; `read_rows` returned them in the same turn."""
        parts: list[tuple[Int64Array, bytes]] = []
        left = self.pile.fill_records(parts, np.arange(len(keys)), keys, rows)
        left = self.rows.fill_records(parts, left, keys, rows)
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
