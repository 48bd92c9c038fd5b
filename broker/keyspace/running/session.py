"""A client, apart from its socket: database, protocol, MULTI, WATCH, subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.encoding import encode_into
from delaylog.broker.keyspace.replies import Reply


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


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """State of one client. `out` holds encoded replies that the host takes away and writes."""

    number: int
    database: Database
    resp: int = 2
    name: bytes = b""
    address: bytes = b""
    """Where it comes from, and below: where it came in."""
    local_address: bytes = b""
    descriptor: int = -1
    user: bytes = b"default"
    library: bytes = b""
    library_version: bytes = b""
    created_ms: int = 0
    used_ms: int = 0
    used_word: bytes = b""
    """The last command, for CLIENT LIST."""
    authenticated: bool = True
    special: bool = False
    """Something below makes commands go the long way: see `look`."""
    queue: list[tuple[Command, Args]] | None = None
    """Commands since MULTI."""
    queued_bytes: int = 0
    failed_multi: bool = False
    """One of them was refused already."""
    watched: list[tuple[Database, bytes, bool]] = field(default_factory=list)
    """With whether the key's time had come already."""
    dirty_watch: bool = False
    """A watched key was changed."""
    channels: dict[bytes, None] = field(default_factory=dict)
    patterns: dict[bytes, None] = field(default_factory=dict)
    blocked: Blocked | None = None
    closing: bool = False
    """To be closed once what is in `out` is written."""
    killed: bool = False
    """To be closed at once, without another word."""
    out: list[bytes] = field(default_factory=list)
    on_output: Callable[[Session], None] | None = None
    """Called when something comes that is no answer to what the host just handed in."""
    worker: object | None = None
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
