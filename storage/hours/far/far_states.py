"""States of far rows: the newest in memory, all others in sorted runs, with a stack for each group.

Few far rows have a state: those that were cancelled, moved or replaced. A changed state is an entry
of a dict until a flush writes all changed states as runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from delaylog.storage.columns.questions import distinct, some
from delaylog.storage.columns.whole_rows import put_rows
from delaylog.storage.errors import CorruptionError
from delaylog.storage.hours.far.run_numbers import RunNumbers
from delaylog.storage.hours.far.run_stack import OpenRuns, RunStack
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, hour_key, write_run
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    INDEX_MASK,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    StateArray,
)
from delaylog.storage.work import Work

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
