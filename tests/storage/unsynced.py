"""The real file system without its syncs, for tests whose machine keeps its power.

What was written is in the kernel's cache and outlives the process, synced or not; so a sync changes
nothing that such a test could see, and takes most of its time. That the engine syncs what it has
to, and when, is shown where power is lost: on the disk of `fake_disk.py`.
"""

from __future__ import annotations

from delaylog.storage.file_system import OsFile, OsFileSystem


class UnsyncedFile(OsFile):
    """A file that takes every sync for done."""

    def fdatasync(self) -> None:
        """Nothing that is needed here."""


class UnsyncedFileSystem(OsFileSystem):
    """Files and folders that take every sync for done."""

    _file = UnsyncedFile

    def sync_folder(self, path: str) -> None:
        """Nothing that is needed here."""
