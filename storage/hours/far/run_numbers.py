"""Numbers of run files: the next free number, and the numbers of files that jobs use.

A run that a job writes, merges or reads may be missing in the newest checkpoint. While a job uses
its file, `remove_others` keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from delaylog.storage.files.file_system import FileSystem


class RunNumbers:
    """The files of the far tier's folder, by number."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs = fs
        self.folder = folder
        self.next_number = 1
        self._users: Counter[int] = Counter()
        """How many works write or read a run by jobs: a merge and a split may use the same one."""

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
        self._users[number] += 1
        # Last: a number below the next one is known to be in use, on any thread.
        self.next_number += 1
        return number

    def claim(self, numbers: Iterable[int]) -> None:
        """Mark the files of these runs as in use."""
        self._users.update(numbers)

    def release(self, numbers: Iterable[int]) -> None:
        """End a use of the files of these runs."""
        for number in numbers:
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number]

    @contextmanager
    def pinned(self, numbers: Iterable[int]) -> Iterator[None]:
        """Keep the files of runs while a job reads them."""
        mine = list(numbers)
        self.claim(mine)
        try:
            yield
        finally:
            self.release(mine)

    def in_use(self) -> set[str]:
        """Names of the files that are in use."""
        return {f"{number}.run" for number in list(self._users)}

    def remove_from(self, first: int) -> None:
        """Remove files with numbers from `first` on, which new runs will have."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            if number.isdigit() and int(number) >= first:
                self._fs.unlink(f"{self.folder}/{name}")

    def remove_others(self, needed: set[str], below: int) -> None:
        """Remove all files but those `needed` and those with numbers from `below` on."""
        for name in self._fs.listdir(self.folder):
            number = name.split(".")[0]
            old = not number.isdigit() or int(number) < below
            if name not in needed and old and name.removesuffix(".tmp") not in needed:
                self._fs.unlink(f"{self.folder}/{name}")
