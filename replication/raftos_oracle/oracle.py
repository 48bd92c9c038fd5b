"""The LeaderOracle of a cluster by raftos: suggests the leader that it has elected.

`RaftosOracle` owns the election's node while it runs. Times of the host's clock are used only as
differences, since the election uses the event loop's clock. All calls belong to the loop in which
`start` ran. A vote and a newer term block that loop for a small durable write (some 6 ms).

raftos' own node class makes a queue that current Python refuses, starts a task that never ends, and
adds its peers after the start. In `ElectionNode` (one socket, one state, no task) the members are
known first and messages are sent at once. A disk error ends either one message (no space) or the
whole node.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final

from raftos.server import Node

from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.datagrams import (
    RANDOM_BYTES,
    Message,
    Refusal,
    RefusalCounts,
    Refused,
    Sessions,
    Transport,
)
from delaylog.replication.raftos_oracle.settings import (
    Address,
    Cryptors,
    OracleSettings,
    Roster,
    raftos_id,
)
from delaylog.replication.raftos_oracle.state import ElectionState, SteadyTimer
from delaylog.replication.raftos_oracle.term_file import TermFile
from delaylog.storage.errors import DiskFullError, StorageError
from delaylog.storage.files.file_system import FileSystem

# ---------------------------------------------------------------------- the node of an election

PING_SECONDS: Final = 1.0
"""Interval of the datagrams that show each node whether the path from every other one is open: else
followers exchange none until an election."""


class ElectionNode(Node):
    """One run of a node, from `start` to `stop`."""

    def __init__(
        self,
        roster: Roster,
        storage: TermFile,
        cryptor: Cryptors,
        settings: OracleSettings,
        refusals: RefusalCounts,
    ) -> None:
        """Must be created in a running loop."""
        self.host, self.port = roster.address
        self.cluster: set[Address] = set()
        self.loop = asyncio.get_running_loop()
        self.failure: Exception | None = None
        self._roster = roster
        self._settings = settings
        self._refusals = refusals
        self._running = False
        self._told: asyncio.Handle | None = None
        self.state = ElectionState(self, storage, settings)
        self._sessions = Sessions(roster.others, lambda: secrets.token_hex(RANDOM_BYTES))
        self._protocol = Transport(roster, self._sessions, cryptor, refusals, self.request_handler)
        self._pings = SteadyTimer(lambda: PING_SECONDS, self._protocol.ping_all)
        self._know_members()

    def change_members(self) -> None:
        """The roster has changed, except this node's own address."""
        self._sessions.change(self._roster.others)
        self._know_members()
        if self._running:
            self._protocol.greet_all()

    def _know_members(self) -> None:
        self.cluster = {self._roster.addresses[peer] for peer in self._roster.others}
        self.state.log.know_members(self.state.cluster)

    @property
    def running(self) -> bool:
        """Whether it takes part."""
        return self._running

    async def start(self) -> None:
        """Take part. Raises ClusterError if the address cannot be used."""
        address = self._settings.listen or self._roster.address
        try:
            await self.loop.create_datagram_endpoint(lambda: self._protocol, local_addr=address)
        except OSError as error:
            where = raftos_id(address)
            raise ClusterError(f"UDP {where} cannot be used: {error.strerror or error}") from error
        self._running = True
        self._pings.start()
        self.state.start()

    async def stop(self) -> None:
        """Take no further part; nothing is left in the loop when it returns."""
        self._end()
        await self._protocol.close()

    def _end(self) -> None:
        self._running = False
        self._pings.stop()
        self.state.stop()
        if self._told is not None:
            self._told.cancel()
            self._told = None

    def index_of(self, name: str) -> int | None:
        """The index of a raftos name; None for a former address."""
        return self._roster.index_of(name)

    def ages_ms(self) -> dict[int, int | None]:
        """Time since the newest accepted datagram of each other node; None = none came."""
        heard, now_s = self._protocol.heard_s, self.loop.time()
        return {
            peer: round((now_s - heard[peer]) * 1000) if peer in heard else None
            for peer in self._roster.others
        }

    def send(self, data: Message, destination: str | Address) -> asyncio.Future[None]:
        """Send at once; the returned future is done already."""
        name = destination if isinstance(destination, str) else raftos_id(destination)
        index = self._roster.index_of(name)
        if self._running and index is not None:
            self._protocol.send(data, index)
        sent = self.loop.create_future()
        sent.set_result(None)
        return sent

    def broadcast(self, data: Message) -> None:
        """Send to all other nodes."""
        for destination in self.cluster:
            self.send(data, destination)

    def request_handler(self, data: Message) -> None:
        """Handle a checked message. Raises Refused."""
        if not self._running:
            return
        try:
            self.state.request_handler(data)
        except DiskFullError as error:
            # A term or a vote could not be stored, so nothing was answered, as if it was lost.
            raise Refused(Refusal.DISK_FULL) from error
        except StorageError as error:
            self._fail(error)

    def _fail(self, error: StorageError) -> None:
        """The contents of the disk are unknown now: send nothing that depends on them."""
        self.failure = error
        self._end()
        self.loop.call_soon(self._settings.failed, error)

    def note_change(self) -> None:
        """Tell the host in the next turn of the loop, since it may cause another change."""
        if self._running and self._told is None:
            self._told = self.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._told = None
        self._settings.changed()


# ----------------------------------------------------------------------------------- the oracle

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
        self._resigned_until_ms: int | None = None

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
        return self._resigned_until_ms is None or now_ms >= self._resigned_until_ms

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
        self._resigned_until_ms = until_ms
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
