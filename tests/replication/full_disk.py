"""A disk in memory that is full now and then, and a cluster whose hosts go on when it is.

A promise, a tick or a cut that finds no space changes nothing, and ends the input that needed it.
As a host does, the node then sends what it has queued, and takes the next input.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from delaylog.storage.errors import DiskFullError
from tests.replication.memory_disk import MemoryDisk
from tests.replication.world import World

CHANCE = 0.05


class FullDisk(MemoryDisk):
    """`chance` = the share of writes that find no space."""

    def __init__(self, node: int, size: int) -> None:
        super().__init__(node, size)
        self.chance = CHANCE
        self.refused = 0
        self._random = Random(node)
        self._fill()

    def wipe(self) -> None:
        super().wipe()
        self._fill()

    def _fill(self) -> None:
        for owner, name in ((self.log, "cut"), (self.meta, "save"), (self.ticks, "write")):
            setattr(owner, name, self._if_there_is_room(getattr(owner, name)))

    def _if_there_is_room(self, write: Callable[[Any], None]) -> Callable[[Any], None]:
        def written(value: Any) -> None:
            if self._random.random() < self.chance:
                self.refused += 1
                raise DiskFullError("no space left on device")
            write(value)

        return written


class FullWorld(World):
    """One schedule on such disks."""

    def step(self) -> None:
        try:
            super().step()
        except DiskFullError:
            for node in self.nodes:
                if node.alive:
                    node.step = None
                    node.settle()

    def calm(self, bound_ms: int) -> None:
        for node in self.nodes:
            assert isinstance(node.disk, FullDisk)
            node.disk.chance = 0.0
        super().calm(bound_ms)
