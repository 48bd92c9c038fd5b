"""Datagrams of an election: their messages and checks, replay protection, encryption and refusals.

raftos calls the method that a message names and trusts its fields. So only the kinds of the table
below are accepted, each with exactly its fields; fields about raftos' replicated log must state
that it is empty. A message is sent in an encrypted envelope: version, sender, receiver, stamp.

Each process is a life with a random name. A datagram carries its sender's life and a counter, and
is accepted once, if the life is the known one of the sender. A life is learned only from the answer
to a random challenge, which no recorded datagram can contain. So a datagram from before a restart
of either side is never accepted.

raftos' protocol sends from a task that one bad message ends, and takes the UDP source for the
sender. Here a message is sent at once, without a task, and the envelope names the sender. Every
received datagram is either passed on with the address from the roster, or refused and counted under
one reason. A refusal never ends anything, since anybody who reaches the port can send datagrams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from cryptography.fernet import InvalidToken
from raftos.network import UDPProtocol
from raftos.serializers import JSONSerializer

from delaylog.replication.configuration import NODE_MAX
from delaylog.replication.epochs import EpochTick
from delaylog.replication.raftos_oracle.settings import Cryptors, Roster
from delaylog.replication.raftos_oracle.term_file import TERM_MAX

# -------------------------------------------------------------------------- reasons of refusals


class Refusal(StrEnum):
    """The reasons, as metrics name them."""

    OVERSIZED = "oversized"
    """Longer than any message; not deciphered."""
    UNAUTHENTIC = "unauthentic"
    """Not made with this cluster's key: garbage, or from another cluster."""
    MALFORMED = "malformed"
    """Made with the key, but not a message that a correct node sends."""
    UNKNOWN_TYPE = "unknown_type"
    """A kind of message that this version does not know."""
    STRANGER = "stranger"
    """From a node that is not a member, or for another node."""
    OTHER_LIFE = "other_life"
    """From a process of its sender that has ended, or is unknown. A few occur at every start."""
    REPLAYED = "replayed"
    """Received before, or too old to tell."""
    OLD_TERM = "old_term"
    """An answer or a claim of an older term."""
    DISK_FULL = "disk_full"
    """It requires a durable write for which there is no space; handled as if it was lost."""


class Refused(Exception):
    """A datagram is refused; count it and go on."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        super().__init__(reason.value)


class RefusalCounts:
    """Numbers of refused datagrams by reason, since the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Refusal, 0)

    def note(self, reason: Refusal) -> None:
        """Count one refusal."""
        self._counts[reason] += 1

    def view(self) -> Mapping[str, int]:
        """The counters of all reasons, including zeros."""
        return {reason.value: count for reason, count in self._counts.items()}


# --------------------------------------------------------------------------- lives and counters

WINDOW: Final = 64
"""A datagram that fewer others have overtaken is still accepted."""
_ALL_SEEN: Final = (1 << WINDOW) - 1


class Stamp(NamedTuple):
    """The identity of a datagram."""

    life: str
    counter: int


class _Peer:
    """The state of one other node."""

    __slots__ = ("asked", "life", "newest", "seen", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.asked: str | None = None
        """The challenge that is not answered yet."""
        self.life: str | None = None
        self.newest = 0
        self.seen = 0
        """Bit n: the datagram with counter `newest` - n was accepted."""


class Sessions:
    """The lives and counters of a node and its peers."""

    def __init__(self, peers: Iterable[int], make_random: Callable[[], str]) -> None:
        """`make_random` returns a text that is unique and cannot be guessed."""
        self._make_random = make_random
        self._life = make_random()
        self._peers = {peer: _Peer() for peer in peers}

    def change(self, peers: Iterable[int]) -> None:
        """Use these peers from now on; the state of those that stay is kept."""
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in peers}

    def stamp(self, peer: int) -> Stamp:
        """The stamp for the next datagram to a peer."""
        known = self._peers[peer]
        known.sent += 1
        return Stamp(self._life, known.sent)

    def knows(self, peer: int, life: str) -> bool:
        """Whether this is the known life of a peer."""
        return self._peers[peer].life == life

    def ask(self, peer: int) -> str:
        """The challenge for a peer: the same until it is answered."""
        known = self._peers[peer]
        if known.asked is None:
            known.asked = self._make_random()
        return known.asked

    def take_answer(self, peer: int, stamp: Stamp, answer: str) -> None:
        """A peer has answered the challenge. Another answer is ignored: it was recorded.

        Of a new life, only datagrams that are sent after the answer are accepted.
        """
        known = self._peers[peer]
        if answer != known.asked:
            return
        known.asked = None
        if stamp.life != known.life:
            known.life, known.newest, known.seen = stamp.life, stamp.counter, _ALL_SEEN

    def admit(self, peer: int, stamp: Stamp) -> None:
        """Accept a peer's datagram. Raises Refused if it is not new."""
        known = self._peers[peer]
        if stamp.life != known.life:
            raise Refused(Refusal.OTHER_LIFE)
        ahead = stamp.counter - known.newest
        if ahead > 0:
            known.newest = stamp.counter
            known.seen = (known.seen << min(ahead, WINDOW) | 1) & _ALL_SEEN
            return
        bit = 1 << -ahead
        if -ahead >= WINDOW or known.seen & bit:
            raise Refused(Refusal.REPLAYED)
        known.seen |= bit


# ------------------------------------------------------------------ kinds, fields and envelopes

Message: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[object], bool]

VERSION: Final = 1
RANDOM_BYTES: Final = 16
"""Size of a life and of a challenge; sent as hex digits."""
DATAGRAM_BYTES_MAX: Final = 2_048
"""The longest message has some 700 bytes."""

_U64_MAX: Final = (1 << 64) - 1


def _is_number(value: object, most: int = _U64_MAX) -> bool:
    return type(value) is int and 0 <= value <= most  # a bool is no number here


def _is_term(value: object) -> bool:
    return _is_number(value, TERM_MAX)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _is_zero(value: object) -> bool:
    return _is_number(value, 0)


def _is_empty_list(value: object) -> bool:
    return value == []


def _is_log_state(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_tick(value: object) -> bool:
    """None, or the five numbers of an EpochTick; the last is a wall time and may be negative."""
    if value is None:
        return True
    if not isinstance(value, list) or len(value) != len(EpochTick._fields):
        return False
    *numbers, wall_ms = value
    return all(map(_is_number, numbers)) and type(wall_ms) is int and abs(wall_ms) <= _U64_MAX >> 1


def _is_random(value: object) -> bool:
    return isinstance(value, str) and len(value) == 2 * RANDOM_BYTES


def _is_random_or_none(value: object) -> bool:
    return value is None or _is_random(value)


SHAPES: Final[Mapping[str, Mapping[str, Check]]] = {
    # How nodes learn each other's lives: a random challenge, and the answer to one.
    "hello": {"ask": _is_random_or_none, "answer": _is_random_or_none},
    # Before an election: would you vote for me? It changes no term.
    "pre_vote": {"term": _is_term, "round": _is_number, "standing": _is_log_state},
    "pre_vote_response": {"term": _is_term, "round": _is_number, "vote_granted": _is_bool},
    "request_vote": {
        "term": _is_term,
        "candidate_id": _is_name,
        "last_log_index": _is_zero,
        "last_log_term": _is_zero,
        "standing": _is_log_state,
        # The leader has chosen the candidate: then the length of its log does not matter.
        "by_transfer": _is_bool,
    },
    "request_vote_response": {"term": _is_term, "vote_granted": _is_bool},
    # The heartbeat.
    "append_entries": {
        "term": _is_term,
        "leader_id": _is_name,
        "commit_index": _is_zero,
        "request_id": _is_number,
        "entries": _is_empty_list,
        "prev_log_index": _is_zero,
        "prev_log_term": _is_zero,
        "tick": _is_tick,
    },
    "append_entries_response": {
        "term": _is_term,
        "success": _is_bool,
        "last_log_index": _is_zero,
        "request_id": _is_number,
    },
    # From a leader that hands over: become a candidate at once, without a pre-vote.
    "timeout_now": {"term": _is_term},
}


class Envelope(NamedTuple):
    """The deciphered contents of a datagram."""

    source: int
    target: int
    stamp: Stamp
    message: Message


def pack(envelope: Envelope) -> bytes:
    """The bytes of an envelope in clear text."""
    source, target, stamp, message = envelope
    packed: bytes = JSONSerializer.pack([VERSION, source, target, *stamp, message])
    return packed


def unpack(raw: bytes) -> Envelope:
    """The envelope, whose message is not checked yet. Raises Refused."""
    try:
        version, source, target, life, counter, message = JSONSerializer.unpack(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(Refusal.MALFORMED) from error
    sound = (
        version == VERSION
        and _is_number(source, NODE_MAX)
        and _is_number(target, NODE_MAX)
        and _is_random(life)
        and _is_number(counter)
        and counter > 0
        and isinstance(message, dict)
    )
    if not sound:
        raise Refused(Refusal.MALFORMED)
    return Envelope(source, target, Stamp(life, counter), message)


def check(message: Message, source_id: str) -> None:
    """Check that a correct node could have sent the message. Raises Refused."""
    kind = message.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise Refused(Refusal.UNKNOWN_TYPE)
    if message.keys() - {"type"} != shape.keys():
        raise Refused(Refusal.MALFORMED)
    if not all(sound(message[name]) for name, sound in shape.items()):
        raise Refused(Refusal.MALFORMED)
    for name in ("candidate_id", "leader_id"):
        # A node sends only for itself: otherwise a vote would count for another node.
        if message.get(name, source_id) != source_id:
            raise Refused(Refusal.MALFORMED)


# ------------------------------------------------------------------------ sending and receiving

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
