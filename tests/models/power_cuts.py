"""Power cuts for state machines: upkeep and calls run until the disk fails, then a start recovers.

After a power cut the log ends at its durable position or anywhere behind it. The machine copies its
model after each call, together with the log's end at that moment. After the recovery, the end that
the engine found selects the copy with which the recovered engine must agree.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from delaylog.storage.work import Work
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

ROUNDS_MAX = 4
"""How often the work is repeated when it takes fewer disk operations than `Cut.at`."""


@dataclass(frozen=True)
class Cut:
    """When the power fails, and which unsynced writes survive."""

    at: int
    """The disk operation at which the power fails, counted from the beginning of the work."""
    survival: Survival
    seed: int
    again_at: int
    """The disk operation of the recovery at which the power fails again; 0 for never."""
    loses_ids: bool
    """Whether the id index is lost too, so that the recovery must rebuild it."""


CUTS = st.builds(
    Cut,
    at=st.integers(1, 60),
    survival=st.sampled_from(SURVIVALS),
    seed=st.integers(0, 1 << 16),
    again_at=st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5, 8, 11]),
    loses_ids=st.sampled_from([False, False, True]),
)


class PowerCuts:
    """A mixin for state machines with a `host` on a fake disk and a `model` that can be copied."""

    host: Any
    model: Any

    def work_until_the_power_fails(
        self,
        cut: Cut,
        works: Callable[[], Iterable[Work]],
        meddle: Callable[[Random], None] = lambda _: None,
    ) -> None:
        """Interleave slices of `works` with calls of `meddle`, cut the power, and recover.

        Each call of `meddle` appends at most one frame, and syncs nothing.
        """
        host, random = self.host, Random(cut.seed)
        host.sync()
        log = host.engine.state.log
        known = {log.end_position: deepcopy(self.model)}
        durable = log.end_position
        host.turn = lambda: None
        disk = host.fs
        disk.crash_at = disk.count + cut.at
        try:
            for _ in range(ROUNDS_MAX):
                left = list(works())
                while left:
                    one = random.choice(left)
                    step = next(one, "end")
                    if step == "end":
                        left.remove(one)
                    elif callable(step):
                        step()
                    elif step is not None or random.random() < 0.1:
                        host.sync()
                        durable = log.durable_position
                    if random.random() < 0.3:
                        meddle(random)
                        known[log.end_position] = deepcopy(self.model)
        except DiskCrashed:
            pass
        del host.turn
        found = host.lose_power(
            cut.survival, cut.seed, again_at=cut.again_at, loses_ids=cut.loses_ids
        )
        assert found >= durable, "what was durable is in the log"
        self.model = known[max(end for end in known if end <= found)]


def copy_of(host: Any, target: Path) -> tuple[Any, str]:
    """Copy the host's folder; returns the file system and the path of the copy."""
    if isinstance(host.fs, FakeDisk):
        return deepcopy(host.fs), str(host.folder)
    shutil.copytree(host.folder, target)
    return host.fs, str(target)
