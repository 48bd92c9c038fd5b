"""A workload cut by a loss of power at chosen file operations, and what came back judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

import pytest

from delaylog.broker.engine.engine import Engine
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival

SAMPLE = 25


class Told(Protocol):
    """What clients were told until the crash."""

    now_ms: int


class Life(Protocol):
    """An engine on a fake disk."""

    engine: Engine


ToldT = TypeVar("ToldT", bound=Told)
LifeT = TypeVar("LifeT", bound=Life)


@dataclass(frozen=True)
class Workload(Generic[LifeT, ToldT]):
    """What is done until the disk crashes, and what has to hold when it is back."""

    told: Callable[[], ToldT]
    life: Callable[[FakeDisk, ToldT], LifeT]
    work: Callable[[LifeT], None]
    check: Callable[[LifeT], None]

    def operations(self) -> range:
        """All file operations that it takes, from the first on."""
        disk = FakeDisk()
        life = self.life(disk, self.told())
        self.work(life)
        life.engine.close()
        return range(1, disk.count)

    def sample(self, survival: Survival) -> list[int]:
        """A seeded choice of them."""
        return sorted(Random(survival).sample(self.operations(), SAMPLE))

    def crash_at(self, at: Iterable[int], survival: Callable[[int], Survival]) -> Iterator[ToldT]:
        """Cut it at each, check what comes back, and say what had been told."""
        for operation in at:
            crashing, told = FakeDisk(operation), self.told()
            crashing.crash_at = operation
            with pytest.raises(DiskCrashed):
                self.work(self.life(crashing, told))
            told.now_ms += 5
            after = crashing.restart(survival(operation), operation)
            self.check(self.life(after, told))
            yield told
