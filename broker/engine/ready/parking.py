"""What is parked: messages that came up while their keys were held, for each queue of a group.

The queue of those who take any and the queue of each filter have a lot each, and a lot holds what
its own queue brought: so behind a lot stands nothing of its queue that came up before, whoever else
takes messages of the key meanwhile, and a filter has to look through nothing but what it wants.
A lot holds hints, as the queues do. What memory does not hold goes to disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol

import numpy as np

from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.ready.key_table import Claims, Keys, member_mask
from delaylog.broker.engine.ready.parked_spill import ParkedSpill
from delaylog.broker.engine.ready.ready_queue import ReadyQueue
from delaylog.storage.columns.questions import Mask
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import Int64Array

PARKED_MAX: Final = 262_144
"""Refs that all lots of a group hold in memory; what is beyond goes to disk."""
LOOK_MAX: Final = 4_096
"""Refs looked at at once, if it is more than one of each key."""

Free = Callable[[int], bool]
"""Whether nothing holds a key."""


class Holders(Protocol):
    """Who knows which keys are held."""

    def free(self, key: int) -> bool:
        """Whether no message holds a key."""

    def held(self, keys: Keys) -> Mask:
        """Which of the keys a message holds."""


class Parking:
    """The lots of one group."""

    __slots__ = ("_make_run", "any", "count", "filters", "parked_max")

    def __init__(self, make_run: Callable[[], RunFile], parked_max: int = PARKED_MAX) -> None:
        self._make_run = make_run
        self.parked_max = parked_max
        self.count = 0
        """Refs in memory."""
        self.any = ParkingLot(self, make_run)
        """Of those who take any."""
        self.filters: dict[TagFilter, ParkingLot] = {}

    @property
    def freed(self) -> bool:
        """Whether something that was parked may go out."""
        return self.any.freed or any(lot.freed for lot in self.filters.values())

    def note_free(self, keys: Keys) -> None:
        """Nothing holds these keys any more."""
        self.any.note_free(keys)
        for lot in self.filters.values():
            lot.note_free(keys)

    def lot(self, only: TagFilter | None) -> ParkingLot:
        """The lot of a filter, or of those who take any."""
        if only is None:
            return self.any
        lot = self.filters.get(only)
        if lot is None:
            lot = self.filters[only] = ParkingLot(self, self._make_run)
        return lot

    def drop(self, only: TagFilter) -> None:
        """The queue of a filter goes, and its lot with it."""
        lot = self.filters.pop(only, None)
        if lot is not None:
            lot.clear()

    def unpark(self, key: int) -> list[tuple[TagFilter | None, list[int]]]:
        """What each lot holds in memory under a key, in order."""
        parts = [(only, lot.unpark(key)) for only, lot in self.filters.items()]
        return [part for part in [(None, self.any.unpark(key)), *parts] if part[1]]

    def empty(self) -> UnparkedQueue | None:
        """Empty all lots, for queues that start over; what stood in that of those who take any.

        It is all that is parked: a filter's lot holds nothing that is not there or in a queue.
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
        """Forget the hints: what is parked will come up again, or has ended."""
        self.any.clear()
        for lot in self.filters.values():
            lot.clear()


class ParkingLot:
    """What one queue brought: by key, in order."""

    __slots__ = ("_freed", "_make_run", "_parking", "_spill", "count", "parked")

    def __init__(self, parking: Parking, make_run: Callable[[], RunFile]) -> None:
        self._parking = parking
        self.parked: dict[int, int | deque[int]] = {}
        """One ref stands for itself: it takes a tenth of a deque."""
        self.count = 0
        """Refs in memory."""
        self._make_run = make_run
        self._spill: ParkedSpill | None = None
        self._freed: dict[int, None] = {}
        """Free keys with something parked, in the order in which they came free."""

    def __len__(self) -> int:
        return self.count + (0 if self._spill is None else len(self._spill))

    @property
    def spill(self) -> ParkedSpill:
        """Behind those in memory, those on disk; few groups have any."""
        if self._spill is None:
            self._spill = ParkedSpill(self._make_run)
        return self._spill

    def new_spill(self) -> None:
        """Begin another spill; somebody has taken this one."""
        self._spill = None

    def parked_keys(self) -> Iterator[int]:
        """The keys under which something is parked; those of which all is on disk come last."""
        spilled = () if self._spill is None else self._spill.keys()
        return chain(self.parked, (key for key in spilled if key not in self.parked))

    def holds(self, key: int) -> bool:
        """Whether something is parked under a key."""
        return key in self.parked or (self._spill is not None and self._spill.holds(key))

    @property
    def freed(self) -> bool:
        """Whether something that was parked may go out."""
        return bool(self._freed) or (self._spill is not None and self._spill.wanted)

    @property
    def reading(self) -> bool:
        """Whether parked refs are being looked for on disk, which another call goes on with."""
        return self._spill is not None and self._spill.reading

    def park(self, key: int, ref: int) -> None:
        """Put a ref behind all others of a key."""
        # Behind what is on disk already, or the order inside the key would be lost. Few wait for
        # another's end (their keys are negative): those stay in memory.
        full = self._parking.count >= self._parking.parked_max
        if key > 0 and (full or (self._spill is not None and self._spill.holds(key))):
            self.spill.push(key, ref)
            return
        self._append(key, ref)
        self._add(1)

    def park_many(self, keys: Keys, refs: Int64Array) -> None:
        """The same for many; none of them waits for another's end."""
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

    def held(self, keys: Keys) -> Mask:
        """Under which of the keys something is parked."""
        if not len(self):
            return np.zeros(len(keys), np.bool_)
        return member_mask(keys.tolist(), self._held)

    def _held(self, keys: list[int]) -> set[int]:
        found = self.parked.keys() & keys
        return found if self._spill is None else found | self._spill.held(keys)

    def _add(self, count: int) -> None:
        self.count += count
        self._parking.count += count

    def note_free(self, keys: Keys) -> None:
        """Nothing holds these keys any more."""
        if len(self):
            self._freed.update(dict.fromkeys(self._held(keys.tolist())))

    def first(
        self, keys_max: int, each_max: int, claimed: Claims, gate: Holders
    ) -> list[tuple[int, list[int]]]:
        """(key, its first parked refs) of free keys that the call has not claimed.

        At most so many keys and so many refs of each. They stay parked: for each key `take` is to
        be called.
        """
        out: list[tuple[int, list[int]]] = []
        self._read_spill(gate.free)
        keys_max = min(keys_max, len(self._freed))
        each = min(each_max, max(LOOK_MAX // max(keys_max, 1), 1))
        while self._freed and len(out) < keys_max:
            keys = list(islice(self._freed, keys_max - len(out)))
            column = np.array(keys, np.uint64)
            held = gate.held(column) | claimed.find(column)
            for key, is_held in zip(keys, held.tolist(), strict=True):
                # A key that is claimed is held or given back in the end, and noted again.
                del self._freed[key]
                if is_held:
                    continue
                queue = self.parked.get(key)
                if queue is None:
                    self.spill.want(key)
                elif isinstance(queue, int):
                    out.append((key, [queue]))
                else:
                    out.append((key, list(islice(queue, each))))
        return out

    def take_first(self, keys: list[int]) -> None:
        """Take off the first ref of each of these free keys: they are handed out."""
        for key in keys:
            queue = self.parked[key]
            if isinstance(queue, int) or len(queue) == 1:
                del self.parked[key]
            else:
                queue.popleft()
        self._add(-len(keys))

    def take(self, key: int, count: int, *, claimed: bool) -> None:
        """Take off the first refs of a free key: the last is handed out, or they mean nothing."""
        queue = self.parked[key]
        if not isinstance(queue, int) and count < len(queue):
            for _ in range(count):
                queue.popleft()
        else:
            count = 1 if isinstance(queue, int) else len(queue)
            del self.parked[key]
        self._add(-count)
        if not claimed and self.holds(key):
            self._freed[key] = None

    def give_back(self, key: int, ref: int) -> None:
        """One of a free key is not handed out after all: it goes before what is parked."""
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
        """All that is parked in memory under a key, in order."""
        queue = self.parked.pop(key, ())
        refs = [queue] if isinstance(queue, int) else list(queue)
        self._add(-len(refs))
        return refs

    def _read_spill(self, free: Free) -> None:
        """Bring refs of wanted keys back into memory, a slice at a time."""
        if self._spill is not None and self._spill.wanted:
            pairs = self._spill.read(free)
            for key, ref in pairs:
                if key not in self.parked:
                    self._freed[key] = None
                self._append(key, ref)
            self._add(len(pairs))

    def clear(self) -> None:
        """Forget the hints."""
        self.parked.clear()
        self._freed.clear()
        self._add(-self.count)
        if self._spill is not None:
            self._spill.clear()


class UnparkedQueue(ReadyQueue):
    """What was parked, read as a queue: in order inside each key."""

    def __init__(self, make_run: Callable[[], RunFile], spill: ParkedSpill) -> None:
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
