"""One connection to one peer: the handshake, HELLO, then messages until either side ends it.

The first invalid input closes the connection. No byte of an invalid record is used, and the host
gets the reason once. The host decides which peers may connect and what messages mean.

    CHALLENGE -> (listener only) PROOF -> HELLO -> FOLDER -> OPEN -> CLOSED
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from delaylog.broker.cluster.peers.handshake import (
    CHALLENGE_SIZE,
    NO_PROOF,
    NOT_LASTING,
    PROOF_SIZE,
    Handshake,
    HandshakeError,
    Identity,
    Levels,
    PeerTraffic,
    Refused,
    Side,
)
from delaylog.broker.cluster.peers.records import (
    RECORD_BYTES_MAX,
    TURN_BYTES,
    Outgoing,
    PeerLimits,
    RecordError,
    RecordReader,
    RecordWriter,
)
from delaylog.broker.cluster.peers.tls import (
    ANSWER_IN_PLAIN,
    answers_in_tls,
    peer_has_tls,
    tls_failure,
)
from delaylog.broker.host.tls.failed_handshakes import opens_with_tls
from delaylog.replication.errors import PeerError, WireError
from delaylog.replication.messages import FolderIdentity, Hello, Message
from delaylog.replication.wire import HEADER_SIZE, LAYOUTS, Decoder, encode

if TYPE_CHECKING:
    from delaylog.broker.cluster.peers.transport import PeerTransport

HELLO_BYTES: Final = sum(map(len, encode(Hello(bytes(16), 0, False, 0, 0))))
FOLDER_BYTES_MAX: Final = HEADER_SIZE + next(
    layout.size_max for layout in LAYOUTS if layout.type is FolderIdentity
)
_BEHIND_HELLO: Final = [
    layout.type for layout in LAYOUTS if layout.type not in (Hello, FolderIdentity)
]
assert HELLO_BYTES > HEADER_SIZE


class Stage(IntEnum):
    """The stages of a connection."""

    CHALLENGE = 1
    PROOF = 2
    HELLO = 3
    FOLDER = 4
    OPEN = 5
    CLOSED = 6


_PROVEN: Final = (Stage.HELLO, Stage.FOLDER, Stage.OPEN)
"""Stages in which both sides have proven the secret, and records are exchanged."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one TCP or TLS connection."""

    def __init__(
        self,
        host: PeerTransport,
        identity: Identity,
        hello: Callable[[], Hello],
        *,
        folder: Callable[[int], FolderIdentity],
        limits: PeerLimits,
        who: str,
        expected: int | None = None,
    ) -> None:
        """`folder` = the identity of this node's folder to send to a peer; `who` = the peer, for
        messages; `expected` = the peer that is dialled, None = this side listens.
        """
        self.who = who
        self._host = host
        self._identity = identity
        self._hello = hello
        self._folder = folder
        self._limits = limits
        self._expected = expected
        self._side = Side.LISTENS if expected is None else Side.DIALS
        self._handshake = Handshake(identity, self._side, host.nonce())
        self._raw = bytearray()
        """Received bytes of the handshake."""
        self._space = bytearray(_due(self._side, Stage.CHALLENGE))
        self._reader: RecordReader | None = None
        self._outgoing: Outgoing | None = None
        self._decoder = Decoder([Hello])
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.stage = Stage.CHALLENGE
        self.hello: Hello | None = None
        """The peer's HELLO; None until the connection is open."""
        self._heard: Hello | None = None
        self.folder: FolderIdentity | None = None
        """The identity of the peer's folder; None until the connection is open."""
        self.traffic = PeerTraffic()
        """The host replaces it by the counters of the peer."""
        self.heard_at = self.sent_at = self.began_at = self._loop.time()
        self.ended_at: float | None = None
        self.reason: Refused | None = None
        """Why it was closed; None also for the peer's end between two records."""
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is open, or closed before it was."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed."""

    # ------------------------------------------------------------------ calls of the host

    @property
    def peer(self) -> int:
        """The index of the peer."""
        assert self._handshake.peer is not None
        return self._handshake.peer

    @property
    def was_refused(self) -> bool:
        """Whether it was connected, and either side has ended it soon, for a reason that lasts."""
        if self._transport is None or self.ended_at is None or self.reason in NOT_LASTING:
            return False
        return (self.ended_at - self.began_at) * 1000 < self._limits.settled_ms

    @property
    def levels(self) -> Levels:
        """The feature levels that the peer has announced."""
        return self._handshake.peer_levels

    @property
    def bytes_waiting(self) -> int:
        """Bytes sent and not taken by the kernel yet."""
        waiting = 0 if self._outgoing is None else self._outgoing.bytes_waiting
        transport = self._transport
        return waiting if transport is None else waiting + transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Queue a message. A peer with too many waiting bytes is disconnected."""
        if self.stage != Stage.OPEN:
            return
        assert self._outgoing is not None
        if self.bytes_waiting > self._limits.outgoing_bytes_max:
            self.close(Refused.SLOW, f"{self.bytes_waiting} bytes wait for it")
            return
        self._outgoing.add(message)
        self.traffic.messages_out += 1

    def flush(self) -> bool:
        """Hand queued messages to the socket; True if some are left for the next turn."""
        outgoing = self._outgoing
        if self.stage not in _PROVEN or outgoing is None:
            return False
        for block in outgoing.take(TURN_BYTES):
            self._write(block)
        return outgoing.bytes_waiting > 0

    def look(self, now_s: float, silent_ms: float) -> None:
        """Send a ping if it is time; close if the peer sent no byte for `silent_ms`."""
        if self.stage not in _PROVEN:
            return
        assert self._outgoing is not None
        if (now_s - self.heard_at) * 1000 >= silent_ms:
            self.close(Refused.SILENT, f"no byte for {silent_ms:.0f} ms")
        elif (now_s - self.sent_at) * 1000 >= self._limits.ping_ms:
            if not self._outgoing.bytes_waiting:
                self._write(self._outgoing.ping())

    def close(self, reason: Refused | None, detail: str = "", *, gently: bool = False) -> None:
        """Close it, once. `gently` = first send the bytes that the kernel has not taken yet."""
        if self.stage == Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        self.reason, self.ended_at = reason, self._loop.time()
        self._outgoing = self._reader = None
        if self._transport is None:
            pass
        elif gently:
            self._transport.close()
        else:
            self._transport.abort()
        self._settle()
        self._host.closed(self, reason, detail)

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    @contextmanager
    def made_or_lost(self) -> Iterator[None]:
        """Wrap the call that connects it, so that `lost` is always set.

        uvloop drops a connection if the call that makes it is cancelled in the turn in which it
        was made, and does not call `connection_lost` then. A slow turn may have opened it already:
        the next write would raise RuntimeError.
        """
        try:
            yield
        except BaseException:
            self._lose()
            if self.stage == Stage.OPEN:
                self.close(Refused.LATE, "this node gave up the dial as it succeeded")
            raise

    # ------------------------------------------------------------------ calls of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, with TLS if configured; nothing is authenticated yet."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self.began_at = self._loop.time()
        self._host.made(self)
        if self.stage == Stage.CLOSED:
            self._transport.abort()
        elif self._expected is not None:
            self._write(self._handshake.challenge(self._expected))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        if isinstance(exc, ssl.SSLError):
            self.close(Refused.TLS, tls_failure(exc, self.who))
        elif self.stage == Stage.CHALLENGE and answers_in_tls(self._raw):
            self.close(Refused.TLS, peer_has_tls(self.who))
        elif self.stage < Stage.OPEN:
            text = "it ended before the peer was known"
            why = "the peer's log may have the reason" if exc is None else exc
            self.close(Refused.CUT, f"{text}: {why}")
        elif self._reader is not None and self._reader.inside:
            self.close(Refused.CUT, "it ended inside a record")
        else:
            self.close(None, "" if exc is None else str(exc))
        self._lose()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio names it
        """The buffer for the next received bytes."""
        if self._reader is not None:
            return self._reader.space()
        return memoryview(self._space)[: max(1, len(self._space) - len(self._raw))]

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes. Invalid input closes this connection only."""
        if self.stage == Stage.CLOSED:
            return
        self.heard_at = self._loop.time()
        try:
            if self._reader is None:
                self._shake(nbytes)
            else:
                self._reader.filled(nbytes)
                self.traffic.bytes_in += nbytes
                self._take_records(self._reader)
        except HandshakeError as error:
            gently = self.stage is Stage.FOLDER
            if error.reason is Refused.KEY and self._side is Side.DIALS:
                # The listener gets a proof that is wrong for every secret, so that it learns why
                # this side ends the connection.
                self._write(NO_PROOF)
                gently = True
            # The identity that was sent may tell the peer that its own folder is stale.
            self.close(error.reason, str(error), gently=gently)
        except RecordError as error:
            self.close(Refused.RECORD, str(error))
        except WireError as error:
            hello = self.stage == Stage.HELLO
            self.close(Refused.HELLO if hello else Refused.WIRE, str(error))
        except PeerError as error:
            self.close(Refused.MESSAGE, str(error))
        except Exception as error:
            # A fault of this node, such as a disk error: the loop's exception handler logs it.
            self.close(Refused.FAILED, repr(error))
            raise
        finally:
            self._host.turn_ended()

    # ------------------------------------------------------------------ handshake

    def _shake(self, nbytes: int) -> None:
        """Read exactly the bytes of the handshake; records follow in a later read."""
        self._raw += self._space[:nbytes]
        if self.stage == Stage.CHALLENGE and opens_with_tls(self._raw):
            self._write(ANSWER_IN_PLAIN)
            text = peer_has_tls(self.who)
            self.close(Refused.TLS, text, gently=True)
            return
        if len(self._raw) < len(self._space):
            return
        data, self._raw = bytes(self._raw), bytearray()
        if self._side is Side.DIALS:
            self._write(self._handshake.answer(data))
            self._begin_records()
        elif self.stage == Stage.CHALLENGE:
            self._write(self._handshake.meet(data))
            self.stage = Stage.PROOF
            self._space = bytearray(_due(self._side, Stage.PROOF))
        else:
            self._handshake.check(data)
            self._begin_records()

    def _begin_records(self) -> None:
        session = self._handshake.session()
        self._reader = RecordReader(session.receive_key, HELLO_BYTES)
        self._outgoing = Outgoing(RecordWriter(session.send_key))
        self._outgoing.add(self._hello())
        self.stage = Stage.HELLO
        self.traffic = PeerTraffic()
        self.flush()
        self._outgoing.add(self._folder(self.peer))
        self.flush()

    def _take_records(self, reader: RecordReader) -> None:
        while self.stage != Stage.CLOSED:
            carried = reader.record()
            if carried is None:
                return
            with carried:
                messages = self._decoder.feed(carried)
            self._decoder.finish()
            if self.stage == Stage.HELLO and not messages:
                raise HandshakeError(Refused.HELLO, "a record without HELLO came first")
            for message in messages:
                if self.stage == Stage.HELLO:
                    self._meet(reader, message)
                elif self.stage == Stage.FOLDER:
                    self._meet_folder(reader, message)
                elif self.stage == Stage.OPEN:
                    self.traffic.messages_in += 1
                    self._host.received(self, message)

    def _meet(self, reader: RecordReader, hello: Message) -> None:
        """The peer's HELLO: it must name the peer of the handshake."""
        assert isinstance(hello, Hello), "the decoder lets nothing else through"
        if hello.cluster_id != self._identity.cluster_id or hello.node != self.peer:
            text = f"node {self.peer} says it is node {hello.node} of another cluster or place"
            raise HandshakeError(Refused.HELLO, text)
        # The level of the log may have risen since the challenge was made.
        self._handshake.check_levels()
        self._heard = hello
        reader.size_max = FOLDER_BYTES_MAX
        self._decoder = Decoder([FolderIdentity])
        self.stage = Stage.FOLDER

    def _meet_folder(self, reader: RecordReader, folder: Message) -> None:
        """The identity of the peer's folder."""
        assert isinstance(folder, FolderIdentity), "the decoder lets nothing else through"
        assert self._heard is not None, "HELLO came before"
        self.folder = folder
        self._host.judge(self, self._heard, folder)
        self.hello = self._heard
        reader.size_max = RECORD_BYTES_MAX
        self._decoder = Decoder(_BEHIND_HELLO)
        self.stage = Stage.OPEN
        self._settle()
        self._host.opened(self)

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)

    def _write(self, block: bytes | memoryview) -> None:
        assert self._transport is not None
        self.sent_at = self._loop.time()
        self.traffic.bytes_out += len(block)
        self._transport.write(block)


def _due(side: Side, stage: Stage) -> int:
    """The number of bytes that the handshake receives next."""
    if stage == Stage.PROOF:
        return PROOF_SIZE
    return CHALLENGE_SIZE + (PROOF_SIZE if side is Side.DIALS else 0)
