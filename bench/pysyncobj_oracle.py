"""PySyncObj's election as a LeaderOracle: what it would take to let it elect instead of raftos.

For the bench only. It replicates nothing: its log holds the no-op entries of its leaders. Messages
between nodes are pickles, so they are always encrypted with the secret. What it leaves out, beside
raftos_oracle: the tick in heartbeats, a preference for complete logs, learners that do not stand,
a node that has resigned and does not stand, pre-vote, an fsync of the vote, the word of a failed
disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pysyncobj import SyncObj, SyncObjConf

Address = tuple[str, int]


class PySyncObjOracle:
    """Elects among the members over TCP, in a thread of its own."""

    failure: Exception | None = None
    refused: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, folder: str, node: int, members: Mapping[int, Address], secret: bytes
    ) -> None:
        self._names = {index: f"{host}:{port}" for index, (host, port) in members.items()}
        self._indexes = {name: index for index, name in self._names.items()}
        self._node = node
        self._out_until_ms = 0
        # The times of ElectionTiming, as far as PySyncObj has them.
        self._settings = SyncObjConf(
            password=secret,
            journalFile=f"{folder}/election",
            appendEntriesPeriod=0.05,
            raftMinTimeout=0.25,
            raftMaxTimeout=0.5,
            leaderFallbackTimeout=0.25,
            # Followers say nothing to each other. At 0.5 s their connections are mostly down when a
            # vote is asked for, and a fail-over takes 0.3 s longer (measured).
            connectionTimeout=30.0,
            connectionRetryTime=0.05,
        )
        self._raft: SyncObj | None = None

    async def start(self) -> None:
        others = [name for index, name in self._names.items() if index != self._node]
        self._raft = SyncObj(self._names[self._node], others, self._settings)

    async def stop(self) -> None:
        if self._raft is not None:
            self._raft.destroy()
            self._raft = None

    def suggests(self, now_ms: int) -> bool:
        return self._raft is not None and now_ms >= self._out_until_ms and self._raft._isLeader()

    def leader(self, now_ms: int) -> int | None:
        known = None if self._raft is None else self._raft._getLeader()
        return None if known is None else self._indexes[known.id]

    def resign(self, now_ms: int, until_ms: int) -> None:
        """PySyncObj cannot abstain: the node passes its lead on and may be elected again."""
        self._out_until_ms = until_ms
        if self._raft is not None:
            self._raft.transferLeadership()

    def transfer(self, target: int, now_ms: int) -> None:
        if self._raft is not None:
            self._raft.transferLeadership(self._names[target])
