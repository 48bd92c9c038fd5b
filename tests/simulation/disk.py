"""The disk of a simulated machine: the fake disk, with faults that last for a time.

It fills up and has space again, it refuses single operations, and a file of many bytes read or
written takes as long as any other: time passes in workers only.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from delaylog.storage.errors import DiskFullError
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival

TOTAL_BYTES: Final = 1 << 42
FREE_BYTES: Final = 1 << 40


class SimDisk(FakeDisk):
    """All that is on it survives a restart of the process; `restart` is a power cut."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.full_share = 0.0
        """The share of writes that find no space."""
        self.on_operation_of: Callable[[str, str], None] = lambda kind, path: None
        self.spend: Callable[[str], None] = lambda kind: None
        """Lets an operation of this kind take its time."""
        self.on_crash: Callable[[], None] = lambda: None
        self.faults = Random(seed)

    @classmethod
    def after(cls, disk: FakeDisk, survival: Survival, seed: int) -> SimDisk:
        """The disk that a power cut or a kill leaves."""
        fresh = cls(seed)
        if survival != "prefix":
            fresh.root = disk.restart(survival, seed).root
            return fresh
        # A prefix of all operations, as on a disk that keeps their order. Of the last one each
        # sector is there or not, since no disk tears a sector.
        disk.crashed = True
        random = Random(seed)
        cut = random.randrange(disk.count + 1)
        disk.root.settle(
            lambda number: None if number == cut else 1 << 40 if number < cut else 0,
            lambda number: random.random() < 0.5,
        )
        fresh.root = disk.root
        return fresh

    def operate(
        self,
        kind: str,
        path: str,
        act: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
        *,
        begun: Callable[[], None] | None = None,
    ) -> None:
        """As the fake disk, and what lasts."""
        self.alive()
        self.on_operation_of(kind, path)
        self.spend(kind)
        if path.endswith("/tick"):
            # It writes within a sector, of which a failed write leaves no part.
            failed = _nothing
        if self.full_share and kind in self.full_kinds and self.faults.random() < self.full_share:
            failed()
            raise DiskFullError(f"no space for {path}")
        try:
            super().operate(kind, path, act, failed, begun=begun)
        except DiskCrashed:
            self.on_crash()
            raise
        self.log.clear()

    def free_bytes(self, path: str) -> int:
        """None while it is full; a share of a disk is full although it has some."""
        return 0 if self.full_share == 1.0 else FREE_BYTES

    def total_bytes(self, path: str) -> int:
        """Enough."""
        return TOTAL_BYTES


def _nothing() -> None:
    pass
