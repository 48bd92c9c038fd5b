"""Peers: other delay queues, measured by the same cases in the same run.

Only the seam is here: a peer is started in a folder of its own, loaded and drained with the same
counts, batch sizes and bodies as the broker, and its rows stand in the same tables. The one rule:
a peer does the broker's job in the way its own users do it (pipelined, persistent as its usual
setting has it), and its row says with which durability.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """One timed run against a peer, measured as the broker's runs are."""

    messages: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float


class Peer(Protocol):
    """One other delay queue; `name` says its version and durability: `redis 7 AOF everysec`."""

    name: str

    def available(self) -> bool:
        """Whether its program and client are installed here."""

    def start(self, folder: Path) -> None:
        """Start it with its data below `folder`."""

    def stop(self) -> None:
        """End it; fine to call when it is not running."""

    def ingest(self, dues_ms: npt.NDArray[np.int64], *, batch: int, body_size: int) -> PeerFigures:
        """Send one message per due time, `batch` in one round trip, over as many connections as
        suit it; the clock stops with the last answer."""

    def fill_due(self, messages: int, *, body_size: int) -> None:
        """Put in messages that are due at once, outside the clock."""

    def drain(self, messages: int, *, batch: int) -> PeerFigures:
        """Take and settle that many due messages, up to `batch` in one round trip."""


# Filled by modules that implement a peer; run.py measures those that are available.
PEERS: Final[list[Peer]] = []
