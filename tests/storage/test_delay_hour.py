"""Syncs of one hour's files that fail and are repeated.

Method: the fake disk keeps only what was synced. What an hour stores is tested by the hour store.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.hours.delay_hour import DelayHour
from tests.storage.fake_disk import FakeDisk


@pytest.mark.parametrize("failing", ["the folder", "a file"])
def test_a_sync_without_a_descriptor_is_repeated(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Background work goes on after that error and syncs again."""
    disk = FakeDisk()
    disk.mkdir("h")
    disk.sync_all()
    hour = DelayHour(disk, "h/1", 1)
    file = hour._file("delay.index", create=True)
    file.pwritev([bytes(4096)], 0)
    hour._unsynced = True

    def fail(*_: object) -> NoReturn:
        raise NoDescriptorError("h/1")

    with monkeypatch.context() as patch:
        if failing == "the folder":
            patch.setattr(disk, "sync_folder", fail)
        else:
            patch.setattr(file, "fdatasync", fail)
        with pytest.raises(NoDescriptorError):
            hour.sync_appends()
    assert hour.unsynced
    hour.sync_appends()
    assert not hour.unsynced
    disk.sync_folder("h")
    assert disk.restart("nothing").exists("h/1/delay.index")
