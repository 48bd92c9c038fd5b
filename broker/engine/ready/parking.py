"""Parked messages: they became ready while their keys were locked. One lot for each queue.

The queue of unfiltered receives and the queue of each tag filter have a lot each, which contains
what that queue delivered to it. So nothing in a queue came up earlier than what is in its lot,
whoever else receives messages of the key meanwhile, and a filtered receive examines only messages
that match its filter. Lots contain hints, as the queues do, and spill to disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol
from weakref import proxy

import numpy as np

from delaylog.broker.engine.ready.fifo_queue import FifoQueue
from delaylog.broker.engine.ready.key_table import Keys, TakenKeys, member_mask
from delaylog.broker.engine.ready.parked_spill import ParkedSpill
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.columns.questions import Mask
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

PARKED_MAX: Final = 262_144
"""Parked refs of a group in memory; more go to disk."""
LOOK_MAX: Final = 4_096
"""Refs examined at once, unless that is less than one of each key."""

Free = Callable[[int], bool]
"""Whether a key is unlocked."""


class KeyLocks(Protocol):
    """Knows which keys are locked."""

    def is_free(self, key: int) -> bool:
        """Whether no message locks a key."""

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
        self._read_spill(gate.is_free)
        keys_max = min(keys_max, len(self._freed))
        each = min(each_max, max(LOOK_MAX // max(keys_max, 1), 1))
        while self._freed and len(out) < keys_max:
            keys = list(islice(self._freed, keys_max - len(out)))
            column = np.array(keys, np.uint64)
            locked = gate.locked(column) | taken.find(column)
            for key, is_locked in zip(keys, locked.tolist(), strict=True):
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

    def _read_spill(self, free: Free) -> None:
        """Move refs of wanted keys back into memory, a slice at a time."""
        if self._spill is not None and self._spill.wanted:
            pairs = self._spill.read(free)
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
