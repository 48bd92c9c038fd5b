"""A first-in-first-out queue of refs, which spills to disk.

The head consists of arrays in memory. While the head is full, refs go to a run of int64 values on
disk, so that fifty million ready messages take bounded memory. Returned refs go in front. The queue
contains hints: states are checked again when a ref is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

HEAD_REFS_MAX: Final = 131_072
REFILL_REFS: Final = 65_536
JOIN_REFS_MAX: Final = 64
"""Small pushes are joined up to this size, since an array has an overhead of 112 bytes."""
Refs: TypeAlias = Int64Array | list[int]
"""Refs that became ready; a list if they are few."""


class FifoQueue:
    """First in, first out, with a front for returned refs."""

    __slots__ = ("_behind", "_few", "_head", "_head_count", "_head_max", "_make_run", "_run")

    def __init__(self, make_run: Callable[[], ScratchQueue], head_max: int = HEAD_REFS_MAX) -> None:
        self._make_run = make_run
        self._head_max = head_max
        self._head: deque[Int64Array] | None = None
        """Created on demand: an empty deque takes 600 bytes."""
        self._few: list[int] = []
        """The newest refs of the head, behind its arrays: those of small pushes."""
        self._head_count = 0
        self._run: ScratchQueue | None = None
        self._behind: deque[Int64Array] | None = None
        """Refs behind the run that a full disk has not taken yet."""

    def __len__(self) -> int:
        if self._run is None:
            return self._head_count
        behind = sum(len(refs) for refs in self._behind) if self._behind else 0
        return self._head_count + len(self._run) + behind

    def push(self, refs: Refs) -> None:
        """Append refs."""
        count = len(refs)
        if count == 0:
            return
        spilled = bool(self._behind) or (self._run is not None and len(self._run) > 0)
        if spilled or self._head_count + len(refs) > self._head_max:
            if self._run is None:
                self._run = self._make_run()
            if self._behind is None:
                self._behind = deque()
            self._behind.append(np.asarray(refs, np.int64))
            self._write_behind()
            return
        if len(self._few) + count > JOIN_REFS_MAX:
            self._join()
        if count <= JOIN_REFS_MAX:
            self._few += refs if isinstance(refs, list) else refs.tolist()
        else:
            self._began().append(np.asarray(refs, np.int64))
        self._head_count += count

    def _join(self) -> None:
        """Make an array of the few refs."""
        if self._few:
            self._began().append(np.array(self._few, np.int64))
            self._few = []

    def _began(self) -> deque[Int64Array]:
        if self._head is None:
            self._head = deque()
        return self._head

    def _write_behind(self) -> None:
        assert self._run is not None
        assert self._behind is not None
        try:
            while self._behind:
                self._run.push(self._behind[0])
                self._behind.popleft()
        except DiskFullError:
            # Eight bytes a message stay in memory until space returns; deliveries go on.
            return

    def push_front(self, refs: Int64Array) -> None:
        """Return popped refs to the front."""
        if len(refs):
            self._began().appendleft(refs)
            self._head_count += len(refs)

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` refs."""
        self._join()
        if self._head_count == 0 and self._run is not None:
            refill = self._run.pop(max(REFILL_REFS, count))
            if not len(refill) and self._behind:
                refill = self._behind.popleft()
            if len(refill):
                self._began().append(refill)
                self._head_count = len(refill)
        parts = []
        left = count
        while left > 0 and self._head:
            first = self._head.popleft()
            if len(first) > left:
                self._head.appendleft(first[left:])
                first = first[:left]
            parts.append(first)
            left -= len(first)
            self._head_count -= len(first)
        if not parts:
            return np.zeros(0, np.int64)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def pop_few(self, count: int, few_max: int) -> list[int]:
        """`pop` as integers; none if there are more than `few_max`, or if some are on disk."""
        left = min(count, self._head_count)
        if not 0 < left <= few_max or (left < count and self._run is not None):
            return []
        if self._head:
            refs: list[int] = self.pop(left).tolist()
            return refs
        refs, self._few = self._few[:left], self._few[left:]
        self._head_count -= left
        return refs

    def in_memory(self, count: int) -> list[Int64Array]:
        """Up to `count` refs at the front of the part in memory, which stay."""
        self._join()
        if not self._head:
            return []
        if len(self._head[0]) >= count:
            return [self._head[0][:count]]
        parts: list[Int64Array] = []
        for refs in self._head:
            if count <= 0:
                break
            parts.append(refs[:count])
            count -= len(refs)
        return parts

    def clear(self) -> None:
        """Drop everything."""
        self._head = self._behind = None
        self._few = []
        self._head_count = 0
        if self._run is not None:
            self._run.close()
            self._run = None
