"""The file `vote`: the newest term that a node knows, and its vote in it.

    32 bytes FILE_HEADER (magic "DLVO", version, a = term, b = index voted for + 1 or 0, crc32c)

raftos' own storage truncates before it writes, one value after the other. Here the file is replaced
as a whole with both values, and `update` returns once it is durable, so no vote that is sent can be
forgotten. The file belongs to the data folder: keep or lose both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftos.storage import FileStorage

from delaylog.replication.errors import TermFileDamagedError
from delaylog.replication.raftos_oracle.settings import Roster
from delaylog.storage.files.file_system import FileSystem, parent_of, read_file, replace_file
from delaylog.storage.layout import open_file, seal_file

TERM_MAGIC: Final = 0x4F564C44  # "DLVO"
TERM_MAX: Final = (1 << 48) - 1
"""Enough for a thousand elections a second for 8,900 years."""


class TermFile(FileStorage):
    """raftos' storage on one durable file, with its attributes `term` and `voted_for`."""

    def __init__(self, fs: FileSystem, path: str, roster: Roster) -> None:
        """Read the file; without a file, term 0 without a vote. Raises TermFileDamagedError."""
        self._fs = fs
        self._path = path
        self._roster = roster
        self.cache = self._read()

    def __getitem__(self, name: str) -> Any:
        return self.cache[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, kwargs: Mapping[str, Any]) -> None:
        """Store values; durable when it returns. A higher term without a vote clears the vote."""
        newer = {**self.cache, **kwargs}
        if newer["term"] > self.term and "voted_for" not in kwargs:
            newer["voted_for"] = None
        if newer == self.cache:
            return
        assert newer["term"] >= self.term, "a term never falls"
        if newer["term"] == self.term:
            assert self.voted_for is None, "a vote is given once a term and stays"
        self._write(newer["term"], newer["voted_for"])
        self.cache = newer

    def _read(self) -> dict[str, Any]:
        if not self._fs.exists(self._path):
            return {"term": 0, "voted_for": None}
        opened = open_file(TERM_MAGIC, read_file(self._fs, self._path))
        if opened is None or opened[0]:
            raise TermFileDamagedError(self._path)
        _, term, voted = opened
        return {"term": term, "voted_for": self._roster.id_of(voted - 1) if voted else None}

    def _write(self, term: int, voted_for: str | None) -> None:
        index = None if voted_for is None else self._roster.index_of(voted_for)
        voted = 0 if index is None else index + 1
        replace_file(self._fs, self._path, [seal_file(TERM_MAGIC, b"", a=term, b=voted)])
        self._fs.sync_folder(parent_of(self._path))
