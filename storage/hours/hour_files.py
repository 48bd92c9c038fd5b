"""The open files of one hour's folder: opened on demand, synced together, closed while unused.

Any thread may open a file, or keep all of them open with `reading`. Only the thread that owns the
hour closes them. The files of state columns are not among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from delaylog.storage.files.file_system import File, FileSystem


class HourFiles:
    """Descriptors of one folder."""

    def __init__(self, fs: FileSystem, folder: str, opened: Callable[[], None]) -> None:
        """`opened` is called when a file was opened."""
        self._fs = fs
        self.folder = folder
        self._opened = opened
        self._files: dict[str, File] = {}
        self._unsynced = False
        self._syncing = False
        self._has_new_names = False
        """Whether a file was created since the folder was last synced."""
        self._readers = 0
        self._readers_lock = threading.Lock()

    def path(self, name: str) -> str:
        """The path of a file."""
        return f"{self.folder}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._fs.exists(self.path(name))

    def open(self, name: str, *, create: bool = False) -> File:
        """A file, which stays open."""
        file = self._files.get(name)
        if file is None:
            if create and not self.exists(name):
                self._fs.mkdir(self.folder)
                self._has_new_names = True
            fresh = self._fs.open(self.path(name), create=create)
            # Another thread may have opened it meanwhile.
            file = self._files.setdefault(name, fresh)
            if file is not fresh:
                fresh.close()
            self._opened()
        return file

    @property
    def count(self) -> int:
        """Descriptors in use."""
        return len(self._files)

    # ------------------------------------------------------------------ syncing

    def changed(self) -> None:
        """Note that bytes will be written which need a sync."""
        self._unsynced = True

    def exchanged(self) -> None:
        """Note that durable files have replaced the written ones, so no sync is needed."""
        self._unsynced = False

    @property
    def unsynced(self) -> bool:
        """Whether written bytes are not synced yet; until then the files stay open."""
        return self._unsynced or self._syncing

    def sync(self) -> None:
        """Make all files durable. Any thread."""
        with self.reading():
            if self._unsynced:
                self._syncing, self._unsynced = True, False
                try:
                    self._sync()
                except BaseException:
                    # The next sync repeats all of it.
                    self._unsynced = True
                    raise
                finally:
                    self._syncing = False

    def _sync(self) -> None:
        for file in list(self._files.values()):
            file.fdatasync()
        if self._has_new_names:
            # Cleared first: another thread may create a file during the sync.
            self._has_new_names = False
            try:
                self._fs.sync_folder(self.folder)
            except BaseException:
                self._has_new_names = True
                raise

    # ------------------------------------------------------------------ closing

    @property
    def readers(self) -> int:
        """How many threads and jobs are inside `reading`."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files open and in place: another thread reads or writes them beside the loop."""
        with self._readers_lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._readers_lock:
                self._readers -= 1

    def close_if_idle(self, close: Callable[[], None]) -> bool:
        """Call `close` unless a thread uses the files or bytes are unsynced; return whether."""
        with self._readers_lock:
            idle = self._readers == 0 and not self.unsynced
            if idle:
                close()
        return idle

    def act_alone(self, act: Callable[[], None]) -> bool:
        """Call `act`, inside `reading`, unless others are inside too; return whether.

        No thread enters `reading` meanwhile.
        """
        with self._readers_lock:
            alone = self._readers == 1
            if alone:
                act()
        return alone

    def take(self) -> list[File]:
        """The open files; the caller closes them."""
        files = list(self._files.values())
        self._files.clear()
        return files
