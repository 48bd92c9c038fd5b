"""Parked refs that do not fit into memory: (key, ref) pairs on disk, in order within each key.

Pairs of wanted keys are found by one pass over everything, in slices. Pairs of wanted keys come
out; all others are copied to a second file, followed by what is parked meanwhile. If a pass copied
one pair of a key, it copies all further pairs of the key, to keep their order. A key that is first
wanted during a pass waits for the next one, since remembering which keys were copied would take
most of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import among
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

BUFFER_PAIRS: Final = 4_096
SLICE_PAIRS: Final = 32_768
PER_KEY_MAX: Final = 65_536
"""Pairs of one key that one pass returns, at most."""


class ParkedSpill:
    """First in, first out inside each key."""

    def __init__(
        self,
        make_run: Callable[[], ScratchQueue],
        *,
        slice_pairs: int = SLICE_PAIRS,
        per_key_max: int = PER_KEY_MAX,
    ) -> None:
        self._make_run = make_run
        self._slice_pairs = slice_pairs
        self._per_key_max = per_key_max
        self._counts: dict[int, int] = {}
        self._count = 0
        """Sum of `_counts`: read at each call, while there may be millions of keys."""
        self._runs: list[ScratchQueue] = []
        """Oldest first; `push` appends to the last one."""
        self._buffer: list[tuple[int, int]] = []
        self._flush_at = BUFFER_PAIRS
        """Buffered pairs at which to write; raised while the disk is full."""
        self._stuck = False
        """Whether the disk was full at the last read: callers must not wait for this pass."""
        self._wanted: set[int] = set()
        self._again: set[int] = set()
        """Keys wanted since the current pass began: for the next pass."""
        self._kept: ScratchQueue | None = None
        """During a pass: the file with the copied pairs."""
        self._left = 0
        """Pairs that the pass has still to read."""
        self._passed: set[int] = set()
        """Wanted keys of which the pass has copied pairs, after it returned `per_key_max`."""
        self._brought: dict[int, int] = {}
        self._unwritten: deque[Int64Array] = deque()
        """Copied pairs that a full disk has not taken yet."""

    def __len__(self) -> int:
        return self._count

    def keys(self) -> Collection[int]:
        """The keys of all pairs here."""
        return self._counts.keys()

    def holds(self, key: int) -> bool:
        """Whether there are pairs of a key."""
        return key in self._counts

    def spilled_among(self, keys: list[int]) -> set[int]:
        """Those of the keys that have pairs here."""
        return self._counts.keys() & keys

    @property
    def wanted(self) -> bool:
        """Whether `read` has something to look for."""
        return bool(self._wanted or self._again)

    @property
    def reading(self) -> bool:
        """Whether another `read` may return more; not while the disk is full."""
        return self.wanted and not self._stuck

    def want(self, key: int) -> None:
        """Return pairs of a key in the next pass."""
        if key in self._counts:
            (self._wanted if self._kept is None else self._again).add(key)

    def push(self, key: int, ref: int) -> None:
        """Append a pair behind all others of its key."""
        self._counts[key] = self._counts.get(key, 0) + 1
        self._count += 1
        self._buffer.append((key, ref))
        if len(self._buffer) >= self._flush_at:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            if not self._runs:
                self._runs.append(self._make_run())
            try:
                self._runs[-1].push(_pack(self._buffer))
            except DiskFullError:
                # They stay in memory until space returns; deliveries go on.
                self._flush_at = len(self._buffer) + BUFFER_PAIRS
                return
            self._buffer.clear()
        self._flush_at = BUFFER_PAIRS

    def read(self, free: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Read one slice of the pass; returns pairs of wanted keys that are `free`."""
        self._wanted = {key for key in self._wanted if key in self._counts and free(key)}
        self._again = {key for key in self._again if key in self._counts and free(key)}
        if not self.wanted:
            return []
        self._flush()
        if self._buffer and self._kept is None and not any(map(len, self._runs)):
            return self._read_buffer()
        self._stuck = False
        try:
            return self._read_slice()
        except DiskFullError:
            self._stuck = True
            return []

    def _read_buffer(self) -> list[tuple[int, int]]:
        """Read pairs that are all in memory because the disk is full."""
        out: list[tuple[int, int]] = []
        left: list[tuple[int, int]] = []
        brought: dict[int, int] = {}
        for key, ref in self._buffer:
            count = brought.get(key, 0)
            if key in self._wanted and count < self._per_key_max:
                brought[key] = count + 1
                out.append((key, ref))
                self._forget(key)
            else:
                left.append((key, ref))
        self._buffer = left
        self._wanted.clear()
        return out

    def _read_slice(self) -> list[tuple[int, int]]:
        self._write_passed()
        if self._kept is None:
            self._left = sum(len(run) // 2 for run in self._runs)
            self._kept = self._make_run()
            self._runs.append(self._make_run())
        out: list[tuple[int, int]] = []
        if self._left:
            run = self._runs[0]
            pairs = run.pop(2 * min(self._slice_pairs, self._left)).reshape(-1, 2)
            self._left -= len(pairs)
            if not len(run):
                run.close()
                self._runs.pop(0)
            looked_for = np.fromiter(self._wanted - self._passed, np.uint64)
            found = among(pairs[:, 0], looked_for.view(np.int64))
            passed_on = [pairs[~found]]
            for key, ref in zip(
                pairs[found, 0].view(np.uint64).tolist(), pairs[found, 1].tolist(), strict=True
            ):
                if self._brought.get(key, 0) >= self._per_key_max:
                    self._passed.add(key)
                    passed_on.append(_pack([(key, ref)]).reshape(-1, 2))
                    continue
                self._brought[key] = self._brought.get(key, 0) + 1
                out.append((key, ref))
                self._forget(key)
            self._unwritten.append(np.concatenate(passed_on).ravel())
            with suppress(DiskFullError):
                self._write_passed()
        if not self._left and not self._unwritten:
            self._end_reading()
        return out

    def pop(self, count: int) -> Int64Array:
        """Take the first refs, whatever their keys. Nothing may be pushed or wanted after that."""
        pairs = self._pop_pairs(count)
        for key in pairs[:, 0].view(np.uint64).tolist():
            self._forget(key)
        return np.ascontiguousarray(pairs[:, 1])

    def _pop_pairs(self, count: int) -> Int64Array:
        # Pairs that a pass has copied came before those that it has not read.
        if self._kept is not None and len(self._kept):
            return self._kept.pop(2 * count).reshape(-1, 2)
        while self._unwritten:
            values = self._unwritten.popleft()
            if len(values) > 2 * count:
                self._unwritten.appendleft(values[2 * count :])
            if len(values):
                return values[: 2 * count].reshape(-1, 2)
        while self._runs:
            pairs = self._runs[0].pop(2 * count).reshape(-1, 2)
            if not len(self._runs[0]):
                self._runs.pop(0).close()
            if len(pairs):
                return pairs
        pairs = _pack(self._buffer[:count]).reshape(-1, 2)
        del self._buffer[:count]
        return pairs

    def _write_passed(self) -> None:
        while self._unwritten:
            assert self._kept is not None
            self._kept.push(self._unwritten[0])
            self._unwritten.popleft()

    def _forget(self, key: int) -> None:
        self._count -= 1
        left = self._counts[key] - 1
        if left:
            self._counts[key] = left
        else:
            del self._counts[key]

    def _end_reading(self) -> None:
        assert self._kept is not None
        runs = [self._kept, *self._runs]
        self._runs = [run for run in runs if len(run)]
        for run in runs:
            if not len(run):
                # Each pass begins two files, so empty ones would pile up.
                run.close()
        self._kept = None
        self._wanted = (self._wanted - self._brought.keys()) | self._again
        self._again.clear()
        self._passed.clear()
        self._brought.clear()

    def clear(self) -> None:
        """Drop everything."""
        for run in self._runs if self._kept is None else [*self._runs, self._kept]:
            run.close()
        self._runs.clear()
        self._buffer.clear()
        self._counts.clear()
        self._count = 0
        self._wanted.clear()
        self._again.clear()
        self._passed.clear()
        self._brought.clear()
        self._unwritten.clear()
        self._kept = None
        self._left = 0
        self._flush_at = BUFFER_PAIRS
        self._stuck = False


def _pack(pairs: list[tuple[int, int]]) -> Int64Array:
    """Pairs as raw values; keys are unsigned."""
    keys = np.array([key for key, _ in pairs], np.uint64).view(np.int64)
    return np.column_stack([keys, np.array([ref for _, ref in pairs], np.int64)]).ravel()
