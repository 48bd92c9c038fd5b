"""Syncs of one hour's files that fail and are repeated.

Method: the fake disk keeps only what was synced. What an hour stores is tested by the hour store.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.hours.open_hours import HourFiles
from tests.storage.fake_disk import FakeDisk


@pytest.mark.parametrize("failing", ["the folder", "a file"])
def test_a_sync_without_a_descriptor_is_repeated(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Background work goes on after that error and syncs again."""
    disk = FakeDisk()
    disk.mkdir("h")
    disk.sync_all()
    files = HourFiles(disk, "h/1", lambda: None)
    file = files.open("delay.index", create=True)
    files.changed()
    file.pwritev([bytes(4096)], 0)

    def fail(*_: object) -> NoReturn:
        raise NoDescriptorError("h/1")

    with monkeypatch.context() as patch:
        if failing == "the folder":
            patch.setattr(disk, "sync_folder", fail)
        else:
            patch.setattr(file, "fdatasync", fail)
        with pytest.raises(NoDescriptorError):
            files.sync()
    assert files.unsynced
    files.sync()
    assert not files.unsynced
    disk.sync_folder("h")
    assert disk.restart("nothing").exists("h/1/delay.index")
