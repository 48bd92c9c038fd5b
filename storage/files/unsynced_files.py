"""A file system without fsync: for folders that need not survive a crash of the machine.

A test that moves the clock by thirty days writes the files of hundreds of hours, and would wait for
the disk at each of them. Written bytes are in the operating system's cache: they survive any end of
the program, but not of the machine.
"""

from __future__ import annotations

from delaylog.storage.files.os_file_system import OsFile, OsFileSystem


class UnsyncedFile(OsFile):
    """An open file that the operating system writes to the disk at any time."""

    def fdatasync(self) -> None:
        """Do nothing."""


class UnsyncedFileSystem(OsFileSystem):
    """The real file system without its fsyncs."""

    _file = UnsyncedFile

    def sync_folder(self, path: str) -> None:
        """Do nothing."""
