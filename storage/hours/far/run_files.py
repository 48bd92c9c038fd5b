"""Numbers of run files: the next free number, and the numbers of files that jobs use.

A run that a job writes, merges or reads may be missing in the newest checkpoint. While a job uses
its file, `remove_others` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from delaylog.storage.files.file_system import FileSystem


class RunFiles:
    """The files of the far tier's folder, by number."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs = fs
        self.folder = folder
        self.next_number = 1
        self._in_flight: set[int] = set()
        """Numbers of runs that jobs on other threads write or read."""

    def make_folder(self) -> None:
        """Create the folder unless it exists."""
        self._fs.mkdir(self.folder)

    @property
    def exist(self) -> bool:
        """Whether the folder exists."""
        return self._fs.exists(self.folder)

    def take_number(self) -> int:
        """A number for a new run, in use until it is released."""
        number = self.next_number
        self.next_number += 1
        self._in_flight.add(number)
        return number

    def claim(self, numbers: Iterable[int]) -> None:
        """Mark the files of these runs as in use."""
        self._in_flight.update(numbers)

    def release(self, numbers: Iterable[int]) -> None:
        """Mark the files of these runs as not in use any more."""
        self._in_flight.difference_update(numbers)

    @contextmanager
    def pinned(self, numbers: Iterable[int]) -> Iterator[None]:
        """Keep the files of runs while a job reads them."""
        mine = set(numbers) - self._in_flight
        self.claim(mine)
        try:
            yield
        finally:
            self.release(mine)

    def in_use(self) -> set[str]:
        """Names of the files that are in use."""
        return {f"{number}.run" for number in self._in_flight}

    def remove_others(self, needed: set[str], below: int | None) -> None:
        """Remove all files but those `needed` and those with numbers from `below` on."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            old = below is None or not number.isdigit() or int(number) < below
            if name not in needed and old and name.removesuffix(".tmp") not in needed:
                self._fs.unlink(f"{self.folder}/{name}")
