"""A node of an election, over raftos' node: one socket, one state, no task.

raftos' own class makes a queue that current Python refuses, starts a task that never ends, and adds
its peers after the start. Here the members are known first and messages are sent at once. A disk
error ends either one message (no space) or the whole node.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from raftos.server import Node

from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.messages import RANDOM_BYTES, Message
from delaylog.replication.raftos_oracle.refusals import Refusal, RefusalCounts, Refused
from delaylog.replication.raftos_oracle.roster import Address, Roster, raftos_id
from delaylog.replication.raftos_oracle.sessions import Sessions
from delaylog.replication.raftos_oracle.settings import Cryptors, OracleSettings
from delaylog.replication.raftos_oracle.state import ElectionState
from delaylog.replication.raftos_oracle.term_file import TermFile
from delaylog.replication.raftos_oracle.timers import SteadyTimer
from delaylog.replication.raftos_oracle.transport import Transport
from delaylog.storage.errors import DiskFullError, StorageError

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
