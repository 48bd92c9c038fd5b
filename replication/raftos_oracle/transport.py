"""Datagrams: encrypts and sends messages; decrypts, checks and passes on received ones.

raftos' protocol sends from a task that one bad message ends, and takes the UDP source for the
sender. Here a message is sent at once, without a task, and the encrypted envelope names the sender.
A received datagram is either refused and counted, or passed on with the address from the roster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cryptography.fernet import InvalidToken
from raftos.network import UDPProtocol
from raftos.serializers import JSONSerializer

from delaylog.replication.raftos_oracle.messages import (
    DATAGRAM_BYTES_MAX,
    Envelope,
    Message,
    check,
    pack,
    unpack,
)
from delaylog.replication.raftos_oracle.refusals import Refusal, RefusalCounts, Refused
from delaylog.replication.raftos_oracle.roster import Roster
from delaylog.replication.raftos_oracle.sessions import Sessions, Stamp
from delaylog.replication.raftos_oracle.settings import Cryptors

HELLO = "hello"
PING: Message = {"type": HELLO, "ask": None, "answer": None}


class Transport(UDPProtocol):
    """The socket of one node."""

    def __init__(
        self,
        roster: Roster,
        sessions: Sessions,
        cryptor: Cryptors,
        refusals: RefusalCounts,
        handler: Callable[[Message], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(None, handler, loop, serializer=JSONSerializer, cryptor=cryptor)
        self._roster = roster
        self._sessions = sessions
        self._refusals = refusals
        self._closed = loop.create_future()
        self.heard_s: dict[int, float] = {}
        """When the newest accepted datagram of each node came, by the loop's clock."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        """Greet all nodes; raftos' own starts its task here."""
        self.transport = transport
        self.greet_all()

    def greet_all(self) -> None:
        """Send a challenge to all other nodes."""
        for peer in self._roster.others:
            self._greet(peer, answer=None, ask=self._sessions.ask(peer))

    def ping_all(self) -> None:
        """Show all nodes that datagrams arrive; nodes of older releases ignore it."""
        for peer in self._roster.others:
            self._greet(peer, answer=None, ask=None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed; raftos' own treats that as an error."""
        if not self._closed.done():
            self._closed.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """A peer's port is closed or unreachable: the datagram is lost."""

    async def close(self) -> None:
        """Close the socket; nothing is sent or received from now on."""
        self.transport.close()
        await self._closed

    def send(self, message: Message, peer: int) -> None:
        """Encrypt a message for a peer and send it; it may be lost like any datagram."""
        if self.transport.is_closing():
            return
        envelope = Envelope(self._roster.node, peer, self._sessions.stamp(peer), message)
        sealed = self.cryptor.encrypt(pack(envelope))
        assert len(sealed) <= DATAGRAM_BYTES_MAX, "no message is as long as that"
        self.transport.sendto(sealed, self._roster.addresses[peer])

    def datagram_received(self, data: bytes, sender: object) -> None:
        """Handle a datagram, or count its refusal."""
        if self.transport.is_closing():
            return
        try:
            self._take(data)
        except Refused as refused:
            self._refusals.note(refused.reason)

    def _take(self, data: bytes) -> None:
        source, _, stamp, message = self._open(data)
        check(message, self._roster.id_of(source))
        ping = message == PING
        if message["type"] == HELLO and not ping:
            self._take_hello(source, stamp, message)
            return
        if not self._sessions.knows(source, stamp.life):
            self._greet(source, answer=None, ask=self._sessions.ask(source))
        self._sessions.admit(source, stamp)
        self.heard_s[source] = self.loop.time()
        if not ping:
            self.request_handler({**message, "sender": self._roster.addresses[source]})

    def _take_hello(self, source: int, stamp: Stamp, message: Message) -> None:
        """Handle a hello. A recorded one does no harm: its answer matches no present challenge, and
        answering its challenge again reveals nothing.
        """
        if message["answer"] is not None:
            self._sessions.take_answer(source, stamp, message["answer"])
        if message["ask"] is not None:
            known = self._sessions.knows(source, stamp.life)
            ask = None if known else self._sessions.ask(source)
            self._greet(source, answer=message["ask"], ask=ask)

    def _greet(self, peer: int, *, answer: str | None, ask: str | None) -> None:
        self.send({"type": HELLO, "ask": ask, "answer": answer}, peer)

    def _open(self, data: bytes) -> Envelope:
        if len(data) > DATAGRAM_BYTES_MAX:
            raise Refused(Refusal.OVERSIZED)
        try:
            raw = self.cryptor.decrypt(data)
        except InvalidToken as error:
            raise Refused(Refusal.UNAUTHENTIC) from error
        envelope = unpack(raw)
        if envelope.source not in self._roster.others or envelope.target != self._roster.node:
            raise Refused(Refusal.STRANGER)
        return envelope
