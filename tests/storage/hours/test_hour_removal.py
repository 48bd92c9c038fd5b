"""A removal that a power cut ends: the next start finds the whole hour, or sees that it was ending.

Method: cut at every operation, with every way in which unsynced changes of names can survive.
"""

from __future__ import annotations

import pytest

from delaylog.storage.hours.hour_folders import HourRemovals
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

FILES = ["delay.index", "delay.log", "extents", "second.index", "state"]


@pytest.mark.parametrize("survival", SURVIVALS)
@pytest.mark.parametrize("operation", range(1, len(FILES) + 3))
def test_an_hour_is_never_half_there(survival: Survival, operation: int) -> None:
    """A start takes an hour with its index and its extents for a whole one."""
    for seed in range(40):
        disk = FakeDisk(seed)
        disk.mkdir("hour")
        for name in FILES:
            disk.open(f"hour/{name}", create=True).close()
        disk.sync_all()
        disk.crash_at = disk.count + operation
        with pytest.raises(DiskCrashed):
            HourRemovals(disk).add("hour")()
        after = disk.restart(survival, seed)
        left = after.listdir("hour") if after.exists("hour") else []
        assert sorted(left) == FILES or not {"delay.index", "extents"} <= set(left)
