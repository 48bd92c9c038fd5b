"""A file system that never asks the disk to be quick: for folders that no crash has to outlive.

A test that moves thirty days in a moment touches the files of hundreds of hours, and would wait for
the disk at each of them. What is written is with the operating system: it survives the program,
however that ends, and not the machine.
"""

from __future__ import annotations

from delaylog.storage.files.os_file_system import OsFile, OsFileSystem


class UnsyncedFile(OsFile):
    """An open file whose bytes reach the disk when the system likes."""

    def fdatasync(self) -> None:
        """Nothing is waited for."""


class UnsyncedFileSystem(OsFileSystem):
    """The real file system without its fsyncs."""

    _file = UnsyncedFile

    def sync_folder(self, path: str) -> None:
        """Nothing is waited for."""
