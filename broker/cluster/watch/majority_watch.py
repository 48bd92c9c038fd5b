"""Logs once that a majority of the voters is not connected, with their names, and when that ends.

Without a majority nothing is acknowledged, so the operator has to know which nodes to bring back. A
leader without one gives up the leadership (fitness/), unless it learns that no other node can lead.
A short time without connections, as at every start, is not logged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from delaylog.replication.configuration import Configuration

GRACE_MS: Final = 2_000

log = logging.getLogger("delaylog.cluster")


class MajorityWatch:
    """The watch of one node."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._told: list[str] | None = None

    @property
    def lacking(self) -> bool:
        """Whether a missing majority was logged and has not ended."""
        return self._told is not None

    def look(
        self, now_ms: int, configuration: Configuration, here: Collection[int], missing: list[str]
    ) -> None:
        """Check; called twice a second. `here` = this node and the connected ones; `missing` =
        names of the voters that are not connected.
        """
        if configuration.agree(here):
            if self._told is not None:
                log.info("a majority of the voters is connected again")
            self._since_ms = self._told = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= GRACE_MS and self._told != missing:
            self._told = missing
            log.error(
                "no majority of the voters: nothing is acknowledged or handed out until enough of "
                "them are connected; missing: %s",
                ", ".join(missing),
            )
