"""A chain of objects that a checkpoint packs in slices while they go on changing.

A checkpoint is of one log position. An object that is about to change while others are still being
packed is packed first (copy-on-write), so each is packed as it was at that position, and in the
order in which the chain had them. Nothing is listed or copied when packing begins.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from delaylog.storage.columns.packing import PackedList
from delaylog.storage.work import Work

SLICE_BYTES: Final = 1 << 14
"""Of packed objects in one slice: some tenths of a millisecond."""
OBJECT_COST: Final = 64
"""What an object takes in a slice besides its bytes."""
BLOCK_BYTES: Final = 1 << 18
"""Blocks of this size are handed to the writer: it copies one at a time."""


class Link:
    """Base of what stands in a chain."""

    __slots__ = ("after", "before", "order")
    before: Any
    after: Any
    order: int


T = TypeVar("T", bound=Link)


class Chain(Generic[T]):
    """Objects in the order in which they were appended last."""

    __slots__ = ("_ends", "_next", "_pack", "_packing")

    def __init__(self, pack: Callable[[T], bytes]) -> None:
        """`pack` gives what a checkpoint keeps of an object."""
        self._ends = Link()
        self._ends.before = self._ends.after = self._ends
        self._next = 0
        self._pack = pack
        self._packing: ChainPacking[T] | None = None

    @property
    def first(self) -> T | None:
        """The one that was appended first of all."""
        ends = self._ends
        return None if ends.after is ends else ends.after

    def append(self, one: T) -> None:
        """Put one that is new, or was removed, behind all others."""
        ends = self._ends
        one.before, one.after, one.order = ends.before, ends, self._next
        ends.before.after = ends.before = one
        self._next += 1

    def remove(self, one: T) -> None:
        """Take one out, before it changes."""
        packing = self._packing
        if packing is not None:
            packing.before_change(one)
            packing.pass_by(one)
        one.before.after, one.after.before = one.after, one.before
        one.before = one.after = None

    def before_change(self, one: T) -> None:
        """What a checkpoint keeps of one of them is about to change."""
        if self._packing is not None:
            self._packing.before_change(one)

    def before_changes(self) -> None:
        """All of them are about to change: pack at once what is left."""
        if self._packing is not None:
            self._packing.finish()

    def snapshot(self, count: int) -> PackedList:
        """The `count` objects that are in the chain now, for a checkpoint; `work` fills it."""
        self._packing = packing = ChainPacking(self._ends, self._next, self._pack, count)
        return packing.packed

    def work(self) -> Work:
        """Pack what the last snapshot is to have."""
        if self._packing is not None:
            yield from self._packing.work()
            self._packing = None

    def give_up(self) -> None:
        """Nobody needs the last snapshot."""
        self._packing = None


class ChainPacking(Generic[T]):
    """Packs the objects of a chain that have an order below `end`."""

    def __init__(self, ends: Link, end: int, pack: Callable[[T], bytes], count: int) -> None:
        self._ends = ends
        self._end = end
        self._pack = pack
        self._cursor = ends.after
        self._reached = 0
        """Those with an order below this are in the blocks."""
        self._early: list[tuple[int, bytes]] = []
        """A heap of those that were packed before their turn."""
        self._early_orders: set[int] = set()
        self._block = bytearray()
        self.packed = PackedList(count)

    def before_change(self, one: T) -> None:
        """Pack an object now unless that was done."""
        order = one.order
        if self._reached <= order < self._end and order not in self._early_orders:
            self._early_orders.add(order)
            heappush(self._early, (order, self._pack(one)))

    def pass_by(self, one: T) -> None:
        """An object leaves its place."""
        if self._cursor is one:
            self._cursor = one.after

    def finish(self) -> None:
        """Pack what is left in one go."""
        for _ in self.work():
            pass

    def work(self) -> Work:
        """Pack what is left."""
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
        """Put what is packed into the blocks, up to this order; returns what that took."""
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
