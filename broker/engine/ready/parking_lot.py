"""Parked messages: they became ready while their keys were locked. One lot for each queue.

The queue of unfiltered receives and the queue of each tag filter have a lot each, which contains
what that queue delivered to it. So nothing in a queue came up earlier than what is in its lot,
whoever else receives messages of the key meanwhile, and a filtered receive examines only messages
that match its filter. Lots contain hints, as the queues do, and spill to disk.

A spill has (key, ref) pairs on disk, in order within each key. Pairs of wanted keys are found by
one pass over everything, in slices. They come out; all others are copied to a second file, followed
by what is parked meanwhile. If a pass copied one pair of a key, it copies all further pairs of the
key, to keep their order. A key that is first wanted during a pass waits for the next one, since
remembering which keys were copied would take most of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Final, Protocol
from weakref import proxy

import numpy as np

from delaylog.broker.engine.ready.fifo_queue import FifoQueue
from delaylog.broker.engine.ready.key_table import Keys, TakenKeys, member_mask
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.columns import Mask, among, some
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

# -------------------------------------------------------------------------- parked refs on disk

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
        self._looked_for: Int64Array = np.zeros(0, np.int64)
        """The wanted keys without those in `_passed`, as of this pass."""
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

    def read(self, locked: Callable[[Keys], Mask]) -> list[tuple[int, int]]:
        """Read one slice of the pass; returns pairs of wanted keys that are not `locked`."""
        if self._kept is None:
            self._wanted = self._unlocked(self._wanted, locked)
        if not self.wanted:
            return []
        self._flush()
        if self._buffer and self._kept is None and not any(map(len, self._runs)):
            return self._read_buffer()
        self._stuck = False
        try:
            return self._read_slice(locked)
        except DiskFullError:
            self._stuck = True
            return []

    def _unlocked(self, keys: set[int], locked: Callable[[Keys], Mask]) -> set[int]:
        """The keys with pairs here that are not locked. There may be a hundred thousand of them, so
        this is done once a pass; what a slice finds is looked at then.
        """
        there = self._counts.keys() & keys
        column = np.fromiter(there, np.uint64, len(there))
        gone = column[locked(column)]
        return there.difference(gone.tolist()) if len(gone) else there

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

    def _read_slice(self, locked: Callable[[Keys], Mask]) -> list[tuple[int, int]]:
        self._write_passed()
        if self._kept is None:
            self._left = sum(len(run) // 2 for run in self._runs)
            self._kept = self._make_run()
            self._runs.append(self._make_run())
            self._look_for()
        out: list[tuple[int, int]] = []
        if self._left:
            run = self._runs[0]
            pairs = run.pop(2 * min(self._slice_pairs, self._left)).reshape(-1, 2)
            self._left -= len(pairs)
            if not len(run):
                run.close()
                self._runs.pop(0)
            found = among(pairs[:, 0], self._looked_for)
            self._leave_locked(pairs, found, locked)
            passed = len(self._passed)
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
            if len(self._passed) > passed:
                self._look_for()
            self._unwritten.append(np.concatenate(passed_on).ravel())
            with suppress(DiskFullError):
                self._write_passed()
        if not self._left and not self._unwritten:
            self._end_reading()
        return out

    def _look_for(self) -> None:
        """Note the keys whose pairs the pass returns."""
        keys = np.fromiter(self._wanted - self._passed, np.uint64)
        self._looked_for = keys.view(np.int64)

    def _leave_locked(self, pairs: Int64Array, found: Mask, locked: Callable[[Keys], Mask]) -> None:
        """Do not return pairs of keys that are locked, here and in the rest of the pass."""
        at = np.flatnonzero(found)
        keys = pairs[at, 0].view(np.uint64)
        busy = locked(keys)
        if some(busy):
            found[at[busy]] = False
            self._wanted.difference_update(keys[busy].tolist())
            self._look_for()

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


# ----------------------------------------------------------------------------------------- lots

PARKED_MAX: Final = 262_144
"""Parked refs of a group in memory; more go to disk."""
LOOK_MAX: Final = 4_096
"""Refs examined at once, unless that is less than one of each key."""

FREED_KEYS: Final = 512
"""Unlocked keys that are looked at together, at least: most may have refs on disk only."""


class KeyLocks(Protocol):
    """Knows which keys are locked."""

    def locked(self, keys: Keys) -> Mask:
        """Which of the keys are locked."""


class Parking:
    """The lots of one group."""

    __slots__ = ("__weakref__", "_make_run", "any", "count", "filters", "parked_max")

    def __init__(self, make_run: Callable[[], ScratchQueue], parked_max: int = PARKED_MAX) -> None:
        self._make_run = make_run
        self.parked_max = parked_max
        self.count = 0
        """Refs in memory."""
        self.any = ParkingLot(self, make_run)
        """The lot of unfiltered receives."""
        self.filters: dict[TagFilter, ParkingLot] = {}

    @property
    def freed(self) -> bool:
        """Whether a parked message may be handed out now."""
        if not self.filters:
            return self.any.freed
        return self.any.freed or any(lot.freed for lot in self.filters.values())

    @property
    def parked(self) -> int:
        """How many messages are parked; one that several filters match counts once for each."""
        return len(self.any) + sum(map(len, self.filters.values()))

    def note_free(self, keys: Keys) -> None:
        """These keys were unlocked."""
        self.any.note_free(keys)
        for lot in self.filters.values():
            lot.note_free(keys)

    def lot(self, only: TagFilter | None) -> ParkingLot:
        """The lot of a filter, or of unfiltered receives; created if there is none."""
        if only is None:
            return self.any
        lot = self.filters.get(only)
        if lot is None:
            lot = self.filters[only] = ParkingLot(self, self._make_run)
        return lot

    def drop(self, only: TagFilter) -> None:
        """Remove the lot of a filter whose queue is closed."""
        lot = self.filters.pop(only, None)
        if lot is not None:
            lot.clear()

    def unpark(self, key: int) -> list[tuple[TagFilter | None, list[int]]]:
        """Take the refs that are parked in memory under a key, in order, by lot."""
        parts = [(only, lot.unpark(key)) for only, lot in self.filters.items()]
        return [part for part in [(None, self.any.unpark(key)), *parts] if part[1]]

    def empty(self) -> UnparkedQueue | None:
        """Empty all lots, since the queues are rebuilt; returns the refs of the unfiltered lot.

        No ref is lost: whatever is in a filter's lot is also in the unfiltered lot or queue.
        """
        for lot in self.filters.values():
            lot.clear()
        lot = self.any
        if not len(lot):
            return None
        out = UnparkedQueue(self._make_run, lot.spill)
        refs = chain.from_iterable(
            (queue,) if isinstance(queue, int) else queue for queue in lot.parked.values()
        )
        out.push_front(np.fromiter(refs, np.int64, lot.count))
        lot.new_spill()
        lot.clear()
        return out

    def clear(self) -> None:
        """Drop the hints: each message is released again, or has ended."""
        self.any.clear()
        for lot in self.filters.values():
            lot.clear()


class ParkingLot:
    """Parked refs of one queue: by key, in order."""

    __slots__ = ("_freed", "_make_run", "_parking", "_spill", "count", "parked")

    def __init__(self, parking: Parking, make_run: Callable[[], ScratchQueue]) -> None:
        # Weak, since no cycle may keep an engine; see `EngineState.inherit`.
        self._parking: Parking = proxy(parking)
        self.parked: dict[int, int | deque[int]] = {}
        """A single ref is stored as an int, which takes a tenth of a deque."""
        self.count = 0
        """Refs in memory."""
        self._make_run = make_run
        self._spill: ParkedSpill | None = None
        self._freed: dict[int, None] = {}
        """Unlocked keys with parked refs, in the order in which they were unlocked."""

    def __len__(self) -> int:
        return self.count + (0 if self._spill is None else len(self._spill))

    @property
    def spill(self) -> ParkedSpill:
        """Refs on disk, behind those in memory. Created on demand: few groups need it."""
        if self._spill is None:
            self._spill = ParkedSpill(self._make_run)
        return self._spill

    def new_spill(self) -> None:
        """Forget the spill, which another queue has taken over."""
        self._spill = None

    def parked_keys(self) -> Iterator[int]:
        """The keys with parked refs; keys with refs on disk only come last."""
        spilled = () if self._spill is None else self._spill.keys()
        return chain(self.parked, (key for key in spilled if key not in self.parked))

    def holds(self, key: int) -> bool:
        """Whether refs are parked under a key."""
        return key in self.parked or (self._spill is not None and self._spill.holds(key))

    @property
    def freed(self) -> bool:
        """Whether a parked message may be handed out now."""
        return bool(self._freed) or (self._spill is not None and self._spill.wanted)

    @property
    def reading(self) -> bool:
        """Whether a search for parked refs on disk is under way, which the next call continues."""
        return self._spill is not None and self._spill.reading

    def park(self, key: int, ref: int) -> None:
        """Park a ref behind all others of its key."""
        # If the key has refs on disk, the ref goes there too, to keep their order. Successors have
        # negative keys; they are few and stay in memory.
        full = self._parking.count >= self._parking.parked_max
        if key > 0 and (full or (self._spill is not None and self._spill.holds(key))):
            self.spill.push(key, ref)
            return
        self._append(key, ref)
        self._add(1)

    def park_many(self, keys: Keys, refs: Int64Array) -> None:
        """Park many refs, none of them of a successor."""
        room = self._parking.parked_max - self._parking.count
        pairs = zip(keys.tolist(), refs.tolist(), strict=True)
        if (self._spill is not None and len(self._spill)) or len(keys) > room:
            for key, ref in pairs:
                self.park(key, ref)
            return
        for key, ref in pairs:
            self._append(key, ref)
        self._add(len(keys))

    def _append(self, key: int, ref: int) -> None:
        queue = self.parked.get(key)
        if queue is None:
            self.parked[key] = ref
        elif isinstance(queue, int):
            self.parked[key] = deque((queue, ref))
        else:
            queue.append(ref)

    def parked_among(self, keys: Keys) -> Mask:
        """Which of the keys have parked refs."""
        if not len(self):
            return np.zeros(len(keys), np.bool_)
        return member_mask(keys.tolist(), self._parked_among)

    def _parked_among(self, keys: list[int]) -> set[int]:
        found = self.parked.keys() & keys
        return found if self._spill is None else found | self._spill.spilled_among(keys)

    def _add(self, count: int) -> None:
        self.count += count
        self._parking.count += count

    def note_free(self, keys: Keys) -> None:
        """These keys were unlocked."""
        if len(self):
            self._freed.update(dict.fromkeys(self._parked_among(keys.tolist())))

    def first(
        self, keys_max: int, each_max: int, taken: TakenKeys, gate: KeyLocks
    ) -> list[tuple[int, list[int]]]:
        """(key, its first parked refs) of unlocked keys that this receive has not taken.

        At most `keys_max` keys and `each_max` refs of each. The refs stay parked: the caller must
        call `take` for each key.
        """
        out: list[tuple[int, list[int]]] = []
        self._read_spill(gate.locked)
        keys_max = min(keys_max, len(self._freed))
        each = min(each_max, max(LOOK_MAX // max(keys_max, 1), 1))
        while self._freed and len(out) < keys_max:
            keys = list(islice(self._freed, max(keys_max - len(out), FREED_KEYS)))
            column = np.array(keys, np.uint64)
            locked = gate.locked(column) | taken.find(column)
            for key, is_locked in zip(keys, locked.tolist(), strict=True):
                if len(out) == keys_max:
                    break
                # A key taken by this receive will be locked or returned, and then noted again.
                del self._freed[key]
                if is_locked:
                    continue
                queue = self.parked.get(key)
                if queue is None:
                    self.spill.want(key)
                elif isinstance(queue, int):
                    out.append((key, [queue]))
                else:
                    out.append((key, list(islice(queue, each))))
        return out

    def first_refs(self) -> Int64Array:
        """The first refs of parked keys in memory: about `LOOK_MAX` of the keys parked first."""
        each = max(LOOK_MAX // max(len(self.parked), 1), 1)
        refs = chain.from_iterable(
            (queue,) if isinstance(queue, int) else islice(queue, each)
            for queue in islice(self.parked.values(), LOOK_MAX)
        )
        return np.fromiter(refs, np.int64)

    def take_first(self, keys: list[int]) -> None:
        """Remove the first ref of each of these keys: they are handed out."""
        for key in keys:
            queue = self.parked[key]
            if isinstance(queue, int) or len(queue) == 1:
                del self.parked[key]
            else:
                queue.popleft()
        self._add(-len(keys))

    def take(self, key: int, count: int, *, taken: bool) -> None:
        """Remove the first refs of a key. With `taken` the last of them is handed out; all others
        were stale."""
        queue = self.parked[key]
        if not isinstance(queue, int) and count < len(queue):
            for _ in range(count):
                queue.popleft()
        else:
            count = 1 if isinstance(queue, int) else len(queue)
            del self.parked[key]
        self._add(-count)
        if not taken and self.holds(key):
            self._freed[key] = None

    def give_back(self, key: int, ref: int) -> None:
        """Return a ref that is not handed out after all: it goes before what is parked."""
        queue = self.parked.get(key)
        if queue is None:
            self.parked[key] = ref
        elif isinstance(queue, int):
            self.parked[key] = deque((ref, queue))
        else:
            queue.appendleft(ref)
        self._add(1)
        self._freed[key] = None

    def unpark(self, key: int) -> list[int]:
        """Take all refs that are parked in memory under a key, in order."""
        queue = self.parked.pop(key, ())
        refs = [queue] if isinstance(queue, int) else list(queue)
        self._add(-len(refs))
        return refs

    def _read_spill(self, locked: Callable[[Keys], Mask]) -> None:
        """Move refs of wanted keys back into memory, a slice at a time."""
        if self._spill is not None and self._spill.wanted:
            pairs = self._spill.read(locked)
            for key, ref in pairs:
                if key not in self.parked:
                    self._freed[key] = None
                self._append(key, ref)
            self._add(len(pairs))

    def clear(self) -> None:
        """Drop the hints."""
        self.parked.clear()
        self._freed.clear()
        self._add(-self.count)
        if self._spill is not None:
            self._spill.clear()


class UnparkedQueue(FifoQueue):
    """Refs of an emptied lot, read as a queue: in order within each key."""

    def __init__(self, make_run: Callable[[], ScratchQueue], spill: ParkedSpill) -> None:
        super().__init__(make_run)
        self._spill = spill

    def __len__(self) -> int:
        return super().__len__() + len(self._spill)

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` refs."""
        refs = super().pop(count)
        return refs if len(refs) else self._spill.pop(count)

    def clear(self) -> None:
        """Drop everything."""
        super().clear()
        self._spill.clear()
