"""raftos' replicated log, which is always empty here.

raftos' log loses entries, hangs and never shrinks (see docs/REPLICATION.md), but only with entries.
Elections only read its length and newest term. Nothing can be added, and no file is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from raftos.storage import Log


class EmptyLog(Log):
    """A log of length zero."""

    def __init__(self) -> None:
        self.cache: list[object] = []
        self.commit_index = 0
        self.last_applied = 0
        self.next_index: dict[str, int] = {}
        self.match_index: dict[str, int] = {}

    def know_members(self, names: Iterable[str]) -> None:
        """Fill the tables that raftos reads for each follower."""
        names = [*names]
        self.next_index = dict.fromkeys(names, 1)
        self.match_index = dict.fromkeys(names, 0)

    def write(self, term: object, command: object) -> NoReturn:
        raise AssertionError("nothing is replicated by raftos")

    def erase_from(self, index: int) -> None:
        """There is nothing to erase."""
