"""A client, apart from its socket: database, protocol, MULTI, WATCH, subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delaylog.broker.keyspace.encoding import encode_into
from delaylog.broker.keyspace.replies import Reply

if TYPE_CHECKING:
    from delaylog.broker.keyspace.database import Database
    from delaylog.broker.keyspace.registry import Args, Command


@dataclass(slots=True)
class Blocked:
    """A command that waits for one of its keys."""

    command: Command
    argv: Args
    database: Database
    keys: list[bytes]
    deadline_ms: int | None
    """By the clock that measures waits; None = for ever."""
    late: Reply
    """What it is answered when the time is up."""
    kind: type | None = None
    """Values of another kind are none that it waits for; None = the command says so itself."""
    ready: bytes = b""
    """The key that has changed: it is served from this one, whatever others hold."""


class Session:
    """State of one client. `out` holds encoded replies that the host takes away and writes."""

    __slots__ = (
        "address",
        "authenticated",
        "blocked",
        "channels",
        "closing",
        "created_ms",
        "database",
        "descriptor",
        "dirty_watch",
        "failed_multi",
        "killed",
        "library",
        "library_version",
        "local_address",
        "name",
        "number",
        "on_output",
        "out",
        "patterns",
        "queue",
        "queued_bytes",
        "resp",
        "special",
        "used_ms",
        "used_word",
        "user",
        "watched",
        "worker",
    )

    def __init__(self, number: int, database: Database) -> None:
        self.number = number
        self.database = database
        self.resp = 2
        self.name = b""
        self.address = b""
        """Where it comes from, and below: where it came in."""
        self.local_address = b""
        self.descriptor = -1
        self.user = b"default"
        self.library = b""
        self.library_version = b""
        self.created_ms = 0
        self.used_ms = 0
        self.used_word = b""
        """The last command, for CLIENT LIST."""
        self.authenticated = True
        self.special = False
        """Something below makes commands go the long way: see `look`."""
        self.queue: list[tuple[Command, Args]] | None = None
        """Commands since MULTI."""
        self.queued_bytes = 0
        self.failed_multi = False
        """One of them was refused already."""
        self.watched: list[tuple[Database, bytes, bool]] = []
        """With whether the key's time had come already."""
        self.dirty_watch = False
        """A watched key was changed."""
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.blocked: Blocked | None = None
        self.closing = False
        """To be closed once what is in `out` is written."""
        self.killed = False
        """To be closed at once, without another word."""
        self.out: list[bytes] = []
        self.on_output: Callable[[Session], None] | None = None
        """Called when something comes that is no answer to what the host just handed in."""
        self.worker: object | None = None
        """What the host keeps with it."""

    @property
    def subscriptions(self) -> int:
        """Channels and patterns together, as their confirmations count them."""
        return len(self.channels) + len(self.patterns)

    @property
    def subscribed(self) -> bool:
        """Whether it gets messages."""
        return bool(self.channels or self.patterns)

    def look(self) -> None:
        """Something changed that decides whether commands go the short way."""
        self.special = (
            not self.authenticated or self.queue is not None or (self.resp == 2 and self.subscribed)
        )

    def kill(self) -> None:
        """Somebody else ends it."""
        self.closing = self.killed = True
        if self.on_output is not None:
            self.on_output(self)

    def deliver(self, reply: Reply) -> None:
        """Answer a command that waited, or hand over what the client did not ask for."""
        encode_into(self.out, reply, self.resp)
        if self.on_output is not None:
            self.on_output(self)
