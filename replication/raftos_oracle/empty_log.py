"""raftos' replicated log, held empty.

It loses entries, wedges and never shrinks (see docs/REPLICATION.md), but its defects need an entry.
Elections only ask for its length and newest term. Nothing can be put in, and no file is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from raftos.storage import Log


class EmptyLog(Log):
    """Length zero for ever."""

    def __init__(self) -> None:
        self.cache: list[object] = []
        self.commit_index = 0
        self.last_applied = 0
        self.next_index: dict[str, int] = {}
        self.match_index: dict[str, int] = {}

    def know_members(self, names: Iterable[str]) -> None:
        """raftos looks these tables up for each follower."""
        names = [*names]
        self.next_index = dict.fromkeys(names, 1)
        self.match_index = dict.fromkeys(names, 0)

    def write(self, term: object, command: object) -> NoReturn:
        raise AssertionError("nothing is replicated by raftos")

    def erase_from(self, index: int) -> None:
        """There is nothing to erase."""
