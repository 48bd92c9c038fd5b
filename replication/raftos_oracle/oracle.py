"""The LeaderOracle of a cluster: suggests the leader that raftos has elected.

It owns the election's node while it runs. Times of the host's clock are used only as differences,
since the election uses the event loop's clock. All calls belong to the loop in which `start` ran. A
vote and a newer term block that loop for a small durable write (some 6 ms).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.node import ElectionNode
from delaylog.replication.raftos_oracle.refusals import RefusalCounts
from delaylog.replication.raftos_oracle.roster import Address, Roster
from delaylog.replication.raftos_oracle.settings import Cryptors, OracleSettings
from delaylog.replication.raftos_oracle.term_file import TermFile
from delaylog.storage.files.file_system import FileSystem

VOTE_NAME = "vote"
"""The file in the data folder with term and vote."""


class RaftosOracle:
    """Elects among the members over UDP."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        node: int,
        members: Mapping[int, Address],
        settings: OracleSettings,
    ) -> None:
        """`folder` = the data folder; `members` = index of each node -> its UDP address, a numeric
        IPv4 host and a port. Raises ClusterError.
        """
        self._fs = fs
        self._path = f"{folder}/{VOTE_NAME}"
        self._roster = Roster(node, members)
        self._settings = settings
        self._refusals = RefusalCounts()
        self._node: ElectionNode | None = None
        self._out_until_ms: int | None = None

    # ------------------------------------------------------------------ running

    async def start(self) -> None:
        """Take part. Raises ClusterError and TermFileDamagedError; nothing runs then."""
        assert self._node is None, "an oracle runs once at a time"
        storage = TermFile(self._fs, self._path, self._roster)
        settings = self._settings
        cryptor = Cryptors(settings)
        await asyncio.to_thread(cryptor.prepare)
        node = ElectionNode(self._roster, storage, cryptor, settings, self._refusals)
        await node.start()
        self._node = node

    async def stop(self) -> None:
        """Take no further part; no task, timer or socket is left. Idempotent."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Elect among these nodes from now on.

        False if that needs another oracle: this node's own address differs, it is alone, or a node
        has no numeric IPv4 address.
        """
        if len(members) < 2 or members.get(self._roster.node) != self._roster.address:
            return False
        try:
            self._roster.change(members)
        except ClusterError:
            return False
        if self._node is not None:
            self._node.change_members()
        return True

    @property
    def term(self) -> int:
        """raftos' term, for information only: it is no epoch. 0 while the oracle does not run."""
        return 0 if self._node is None else int(self._node.state.storage.term)

    @property
    def refused(self) -> Mapping[str, int]:
        """Numbers of refused datagrams, by reason (the values of Refusal), since it was made."""
        return self._refusals.view()

    def ages_ms(self) -> Mapping[int, int | None]:
        """Time since the newest accepted datagram of each other node; None = none came."""
        node = self._running()
        return dict.fromkeys(self._roster.others) if node is None else node.ages_ms()

    @property
    def failure(self) -> Exception | None:
        """The error that has ended its part, if any."""
        return None if self._node is None else self._node.failure

    # ------------------------------------------------------------------ LeaderOracle

    def suggests(self, now_ms: int) -> bool:
        node = self._running()
        if node is None or not node.state.leads:
            return False
        return self._out_until_ms is None or now_ms >= self._out_until_ms

    def leader(self, now_ms: int) -> int | None:
        node = self._running()
        name = None if node is None else node.state.get_leader()
        if name is None:
            return None
        index = self._roster.index_of(name)
        if index is None:
            # The leader that was heard has another address now.
            return None
        return None if index == self._roster.node and not self.suggests(now_ms) else index

    def resign(self, now_ms: int, until_ms: int) -> None:
        self._out_until_ms = until_ms
        node = self._running()
        if node is not None:
            node.state.resign(max(until_ms - now_ms, 0) / 1000)

    def transfer(self, target: int, now_ms: int) -> None:
        """Forgotten after `transfer_deadline_ms`. Only the elected node can transfer."""
        if target not in self._roster.others:
            raise ClusterError(f"node {target} is not another member")
        node = self._running()
        if node is not None:
            node.state.transfer(self._roster.id_of(target))

    def _running(self) -> ElectionNode | None:
        return self._node if self._node is not None and self._node.running else None
