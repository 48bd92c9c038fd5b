"""Power cuts for state machines: background work and calls until the disk is gone, then recovery.

A cut leaves the log with any end from what was durable on. The machine's model is remembered with
the log's end after each call, so after a cut the end that the start found says which calls have
happened, and the model of that moment has to agree with the recovered engine.
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
"""So often the works are done over, if the cut has not come by then."""


@dataclass(frozen=True)
class Cut:
    """When the power fails, and what the disk keeps of what was not synced."""

    at: int
    """Counted in operations of the disk from the beginning of the work."""
    survival: Survival
    seed: int
    again_at: int
    """The operation of the start at which it fails once more; 0 for never."""
    loses_ids: bool
    """Whether the id index has to be made anew."""


CUTS = st.builds(
    Cut,
    at=st.integers(1, 60),
    survival=st.sampled_from(SURVIVALS),
    seed=st.integers(0, 1 << 16),
    again_at=st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5, 8, 11]),
    loses_ids=st.sampled_from([False, False, True]),
)


class PowerCuts:
    """Of a state machine with a `host` on a fake disk and a `model` that can be copied."""

    host: Any
    model: Any

    def work_until_the_power_fails(
        self,
        cut: Cut,
        works: Callable[[], Iterable[Work]],
        meddle: Callable[[Random], None] = lambda _: None,
    ) -> None:
        """Slices of several works in a random order, calls between them, a cut, and a start.

        A call of `meddle` appends a frame at most, and makes nothing durable.
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
    """A file system and the place in it of a copy of the host's folder."""
    if isinstance(host.fs, FakeDisk):
        return deepcopy(host.fs), str(host.folder)
    shutil.copytree(host.folder, target)
    return host.fs, str(target)
