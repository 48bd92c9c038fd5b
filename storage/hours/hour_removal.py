"""Deletes the files of ended hours, on a worker thread.

The newest checkpoint may still name the hour, so the extents and the index are deleted first. From
their absence recovery concludes that it must finish a removal, and that no file was lost.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.work import IoJob

_FIRST: Final = ("extents", "delay.index")


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
