"""The folders of near and past hours: opened on demand, mapped while they are near, removed.

The first flush of an hour creates its folder. `OpenHours` bounds the number of folders with open
files. `DelayHour` reads and writes the files of one folder.

The files of an ended hour are deleted on a worker thread. The newest checkpoint may still name the
hour, so the extents and the index are deleted first. From their absence recovery concludes that it
must finish a removal, and that no file was lost.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_rewrite import settle_rewrite
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.hours.open_hours import OpenHours
from delaylog.storage.layout import hour_name, hour_of_name
from delaylog.storage.work import IoJob

_FIRST: Final = ("extents", "delay.index")


OPEN_HOURS_MAX: Final = 96
"""Hours whose descriptors stay open when the system allows few; each has up to five."""


class HourFolders:
    """The hours that have a folder, by hour."""

    def __init__(self, fs: FileSystem, folder: str, *, open_hours_max: int) -> None:
        self._fs = fs
        self.folder = folder
        self.opened = OpenHours[DelayHour](open_hours_max)
        if not fs.exists(folder):
            fs.mkdir(folder)
            # This name must be durable before any checkpoint is.
            fs.sync_folder(parent_of(folder))
        self.by_hour: dict[int, DelayHour] = {}
        self._removals = HourRemovals(fs)

    def recover(self, near: dict[int, HourCounts], position: int, epoch: int) -> None:
        """Cut every hour to the counts of a checkpoint at `position`; remove unknown folders.

        Hours that were removed after the checkpoint are deleted from `near`.
        """
        present = {
            hour
            for name in self._fs.listdir(self.folder)
            if (hour := hour_of_name(name)) is not None
        }
        for hour in sorted(present | set(near)):
            known = near.get(hour)
            settle_rewrite(self._fs, self._path(hour))
            folder = self.make(hour)
            may_be_gone = known and known.rows and known.ended
            if may_be_gone and not folder.holds_rows_before(position, epoch):
                # The hour was removed after this checkpoint, and may have got rows again after the
                # clock was set back. `cut` deletes its remaining files.
                del near[hour]
                known = None
            # A far hour has no folder, except one that a split after this checkpoint left.
            folder.cut(known.rows if known else 0)
            if known and known.rows:
                self.by_hour[hour] = folder
                folder.close_files()
                self.opened.trim()

    def _path(self, hour: int) -> str:
        return f"{self.folder}/{hour_name(hour)}"

    def hour(self, hour: int) -> DelayHour:
        """The files of an hour; the first flush creates them."""
        found = self.by_hour.get(hour)
        if found is None:
            found = self.make(hour)
            self.add(found)
        found.used = True
        if self.opened.grown:
            self.opened.trim()
        return found

    def make(self, hour: int) -> DelayHour:
        """A new object for an hour's files, which look-ups do not find before `add`."""
        return DelayHour(self._fs, self._path(hour), hour, self.opened)

    def add(self, folder: DelayHour) -> None:
        """Make look-ups find this hour from now on."""
        self.by_hour[folder.hour] = folder
        folder.reader.mapped = folder.hour in self.opened.near

    # ------------------------------------------------------------------ memory

    def set_near(self, near: frozenset[int]) -> None:
        """Set the hours (present and next) that are read through maps; others release theirs."""
        for hour in self.opened.near - near:
            if hour in self.by_hour:
                self.by_hour[hour].reader.unmap()
        for hour in near:
            if hour in self.by_hour:
                self.by_hour[hour].reader.mapped = True
        self.opened.near = near

    def rest(self, hour: int) -> None:
        """Release the pages that a pass over an hour's states made resident, unless it is near."""
        if hour in self.by_hour and hour not in self.opened.near:
            for column in self.by_hour[hour].state_columns:
                column.settle()

    def forget_pages(self) -> None:
        """Release resident file pages that dispatch has passed to the kernel."""
        for hour in self.opened.near:
            if hour in self.by_hour:
                self.by_hour[hour].reader.forget_pages()

    # ------------------------------------------------------------------ removal

    def in_use(self, hour: int) -> bool:
        """Whether another thread reads an hour's files, or work in slices keeps rows of it."""
        folder = self.by_hour.get(hour)
        return folder is not None and not folder.replaceable

    def remove(self, hour: int) -> IoJob:
        """Close the files of an ended hour for good; the returned job deletes them."""
        folder = self.by_hour.pop(hour, None)
        if folder is not None:
            folder.close()
        return self._removals.add(self._path(hour))

    @property
    def removing(self) -> bool:
        """Whether jobs of removals have not run: the work was closed, or its job failed."""
        return self._removals.waiting

    def finish_removals(self) -> None:
        """Delete the folders whose jobs have not run yet: their hours may get rows again."""
        self._removals.finish()

    def close(self) -> None:
        """Close every file."""
        for folder in self.by_hour.values():
            folder.close()
        self.by_hour.clear()


class HourRemovals:
    """The folders to delete, each once."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def add(self, folder: str) -> IoJob:
        """Return a job, for any thread, that deletes a folder. Its files must be closed."""
        self._waiting.add(folder)
        return partial(self._remove, folder)

    @property
    def waiting(self) -> bool:
        """Whether some folders were not deleted yet."""
        return bool(self._waiting)

    def finish(self) -> None:
        """Delete the folders whose jobs have not run yet: their hours may get rows again."""
        for folder in list(self._waiting):
            self._remove(folder)

    def _remove(self, folder: str) -> None:
        with self._lock:
            if folder not in self._waiting:
                return
            fs = self._fs
            if fs.exists(f"{folder}/delay.index"):
                for name in _FIRST:
                    if fs.exists(f"{folder}/{name}"):
                        fs.unlink(f"{folder}/{name}")
                fs.sync_folder(folder)
            if fs.exists(folder):
                fs.remove_tree(folder)
            self._waiting.discard(folder)
