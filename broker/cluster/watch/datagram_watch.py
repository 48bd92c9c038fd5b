"""Logs that the election datagrams of a connected node do not arrive, and when they do again.

Only raftos sends datagrams. Without them it cannot elect, and nodes elect over the connections
between them; a firewall that drops UDP is still an operator's mistake. This looks at what arrives
here, so a path that is open in one direction only is logged by one of the two nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

SILENT_MS: Final = 5_000
"""A node sends a datagram every second, and a leader one every 50 ms."""

log = logging.getLogger("delaylog.cluster")


class DatagramWatch:
    """The watch of one node."""

    def __init__(self, describe: Callable[[int], str], port: Callable[[], str]) -> None:
        """`describe` = a node for log lines; `port` = this node's UDP address."""
        self._describe = describe
        self._port = port
        self._since_ms: dict[int, int] = {}
        """Connected peers -> since when each of them was connected without a break."""
        self._told: set[int] = set()

    @property
    def silent(self) -> list[int]:
        """The connected peers whose datagrams do not arrive."""
        return sorted(self._told)

    def look(self, now_ms: int, senders: Iterable[int], ages_ms: Mapping[int, int | None]) -> None:
        """Check; called twice a second. `senders` = connected peers that use raftos; `ages_ms` =
        time since the last datagram of each peer, None = none came.
        """
        self._since_ms = {peer: self._since_ms.get(peer, now_ms) for peer in senders}
        for peer in [*self._told]:
            if peer not in self._since_ms:
                self._told.discard(peer)
        for peer, since_ms in self._since_ms.items():
            age_ms = ages_ms.get(peer)
            silent_ms = now_ms - since_ms
            if age_ms is not None:
                silent_ms = min(silent_ms, age_ms)
            if silent_ms >= SILENT_MS and peer not in self._told:
                self._told.add(peer)
                log.warning(
                    "no election datagrams come from %s to UDP %s, though it is connected: open "
                    "UDP between the nodes; until then they elect over their TCP connections",
                    self._describe(peer),
                    self._port(),
                )
            elif silent_ms < SILENT_MS and peer in self._told:
                self._told.discard(peer)
                log.info("election datagrams come from %s again", self._describe(peer))
