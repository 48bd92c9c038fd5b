"""A linked list of objects that a checkpoint packs in slices while they go on changing.

A checkpoint is of one log position. An object that is about to change while others are still being
packed is packed before the change (copy-on-write), so that each is packed as it was at that
position, and in the order of the list. Nothing is copied when packing begins.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from delaylog.storage.checkpoint import PackedList
from delaylog.storage.work import Work

SLICE_BYTES: Final = 1 << 14
"""Packed bytes in one slice: some tenths of a millisecond."""
OBJECT_COST: Final = 64
"""Cost of an object in a slice besides its bytes."""
BLOCK_BYTES: Final = 1 << 18
"""Blocks of this size are handed to the writer: it copies one at a time."""


class SnapshotNode:
    """Base class of the objects in a list."""

    __slots__ = ("after", "before", "order")
    before: Any
    after: Any
    order: int


T = TypeVar("T", bound=SnapshotNode)


class SnapshotList(Generic[T]):
    """Objects in the order in which they were appended last."""

    __slots__ = ("_ends", "_next", "_pack", "_packing")

    def __init__(self, pack: Callable[[T], bytes]) -> None:
        """`pack` returns what a checkpoint stores of an object."""
        self._ends = SnapshotNode()
        self._ends.before = self._ends.after = self._ends
        self._next = 0
        self._pack = pack
        self._packing: ListPacking[T] | None = None

    @property
    def first(self) -> T | None:
        """The first object; None if the list is empty."""
        ends = self._ends
        return None if ends.after is ends else ends.after

    def append(self, one: T) -> None:
        """Append an object that is not in the list."""
        ends = self._ends
        one.before, one.after, one.order = ends.before, ends, self._next
        ends.before.after = ends.before = one
        self._next += 1

    def remove(self, one: T) -> None:
        """Remove an object, before it changes."""
        packing = self._packing
        if packing is not None:
            packing.before_change(one)
            packing.pass_by(one)
        one.before.after, one.after.before = one.after, one.before
        one.before = one.after = None

    def before_change(self, one: T) -> None:
        """To be called before a change to what a checkpoint stores of an object."""
        if self._packing is not None:
            self._packing.before_change(one)

    def before_changes(self) -> None:
        """To be called before a change to all objects: packs the rest at once."""
        if self._packing is not None:
            self._packing.finish()

    def snapshot(self, count: int) -> PackedList:
        """The `count` objects in the list now, for a checkpoint; `work` packs them."""
        self._packing = packing = ListPacking(self._ends, self._next, self._pack, count)
        return packing.packed

    def work(self) -> Work:
        """Pack the objects of the last snapshot."""
        if self._packing is not None:
            yield from self._packing.work()
            self._packing = None

    def give_up(self) -> None:
        """Abandon the last snapshot."""
        self._packing = None


class ListPacking(Generic[T]):
    """Packs the objects of a list that have an order below `end`."""

    def __init__(
        self, ends: SnapshotNode, end: int, pack: Callable[[T], bytes], count: int
    ) -> None:
        self._ends = ends
        self._end = end
        self._pack = pack
        self._cursor = ends.after
        self._reached = 0
        """Objects with an order below this are packed into blocks."""
        self._early: list[tuple[int, bytes]] = []
        """A heap of objects that were packed before their turn."""
        self._early_orders: set[int] = set()
        self._block = bytearray()
        self.packed = PackedList(count)

    def before_change(self, one: T) -> None:
        """Pack an object now, unless it is packed."""
        order = one.order
        if self._reached <= order < self._end and order not in self._early_orders:
            self._early_orders.add(order)
            heappush(self._early, (order, self._pack(one)))

    def pass_by(self, one: T) -> None:
        """An object is removed from the list."""
        if self._cursor is one:
            self._cursor = one.after

    def finish(self) -> None:
        """Pack the rest at once."""
        for _ in self.work():
            pass

    def work(self) -> Work:
        """Pack the rest, in slices."""
        spent = 0
        while (one := self._cursor) is not self._ends and one.order < self._end:
            order = one.order
            if order not in self._early_orders:
                heappush(self._early, (order, self._pack(one)))
            self._cursor = one.after
            spent += self._put(order)
            if spent >= SLICE_BYTES:
                yield None
                spent = 0
        self._put(self._end)
        if self._block:
            self.packed.blocks.append(bytes(self._block))
            self._block.clear()

    def _put(self, order: int) -> int:
        """Move packed objects up to this order into the blocks; returns their cost."""
        spent = 0
        while self._early and self._early[0][0] <= order:
            found, packed = heappop(self._early)
            self._early_orders.discard(found)
            self._block += packed
            spent += OBJECT_COST + len(packed)
        self._reached = order + 1
        if len(self._block) >= BLOCK_BYTES:
            self.packed.blocks.append(bytes(self._block))
            self._block.clear()
        return spent
