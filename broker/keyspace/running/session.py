"""State of a client apart from its socket: database, protocol, MULTI, WATCH, subscriptions.

A database lists the sessions that watch each key and sets their `dirty_watch` when a key changes or
expires. No command changes a key that expires, so EXEC checks expiry itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.keyspace import Database
from delaylog.broker.keyspace.replies import Reply, encode_into


@dataclass(slots=True)
class Blocked:
    """A blocked command."""

    command: Command
    argv: Args
    database: Database
    keys: list[bytes]
    deadline_ms: int | None
    """By `Waits.clock_ms`; None = no timeout."""
    timeout_reply: Reply
    """The reply at the timeout."""
    kind: type | None = None
    """It waits for values of this kind; None = the command checks that itself."""
    ready: bytes = b""
    """The key that changed: the command is served from this one, even if other keys have values."""


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """State of one client. The host takes the encoded replies in `out` and writes them."""

    number: int
    database: Database
    resp: int = 2
    name: bytes = b""
    address: bytes = b""
    """The remote address; below, the local one."""
    local_address: bytes = b""
    descriptor: int = -1
    user: bytes = b"default"
    library: bytes = b""
    library_version: bytes = b""
    created_ms: int = 0
    used_ms: int = 0
    used_word: bytes = b""
    """The last command, for CLIENT LIST."""
    certificate: Any = None
    """The host's own object for the client's certificate."""
    authenticated: bool = True
    caller: Any = None
    """The host's own object for the user; None before the client has authenticated."""
    restricted: Any = None
    """`caller`, unless it may use every topic without a limit."""
    limited: bool = False
    """It lacks the right `redis`: commands that are `guarded` are refused."""
    special: bool = False
    """Commands may not take the fast path as they are; set by `update_special`."""
    checked: bool = False
    """`limited` is all that the fast path has to check; set by `update_special`."""
    queue: list[tuple[Command, Args]] | None = None
    """Commands since MULTI."""
    queued_bytes: int = 0
    failed_multi: bool = False
    """A queued command was refused; EXEC will be, too."""
    watched: list[tuple[Database, bytes, bool]] = field(default_factory=list)
    """Database, key, and whether the key had already expired."""
    dirty_watch: bool = False
    """A watched key was changed."""
    channels: dict[bytes, None] = field(default_factory=dict)
    patterns: dict[bytes, None] = field(default_factory=dict)
    blocked: Blocked | None = None
    awaiting: bool = False
    """A command of the host may wait, as a blocked one does."""
    closing: bool = False
    """The connection is closed when `out` is written."""
    killed: bool = False
    """The connection is closed at once, without further replies."""
    out: list[bytes] = field(default_factory=list)
    on_output: Callable[[Session], None] | None = None
    """Called when output appears outside a call of `Executor.handle` for this session."""
    worker: object | None = None
    """The host's own object for this client."""

    @property
    def subscriptions(self) -> int:
        """Number of channels and patterns, as confirmations count them."""
        return len(self.channels) + len(self.patterns)

    @property
    def subscribed(self) -> bool:
        """Whether the client has subscriptions."""
        return bool(self.channels or self.patterns)

    @property
    def is_blocked(self) -> bool:
        """Whether the client waits in a command."""
        return self.blocked is not None or self.awaiting

    def update_special(self) -> None:
        """Set `special` after a change of the state that it depends on."""
        slow = (
            not self.authenticated or self.queue is not None or (self.resp == 2 and self.subscribed)
        )
        self.checked = self.limited and not slow
        self.special = slow or self.limited

    def close(self) -> None:
        """Close the connection when `out` is written."""
        self.closing = True
        if self.on_output is not None:
            self.on_output(self)

    def kill(self) -> None:
        """Close the connection at once."""
        self.closing = self.killed = True
        if self.on_output is not None:
            self.on_output(self)

    def deliver(self, reply: Reply) -> None:
        """Send the reply of a blocked command, or a message that the client did not request."""
        encode_into(self.out, reply, self.resp)
        if self.on_output is not None:
            self.on_output(self)


# ---------------------------------------------------------------------------------------- WATCH


def watch_keys(session: Session, keys: list[bytes], now_ms: int) -> None:
    """Watch these keys in the session's database."""
    database = session.database
    for key in keys:
        if not any(db is database and k == key for db, k, _ in session.watched):
            at_ms = database.expires.get(key)
            over = at_ms is not None and at_ms <= now_ms
            session.watched.append((database, key, over))
            database.watchers.setdefault(key, {})[session] = None


def watched_is_over(session: Session, now_ms: int) -> bool:
    """Whether a watched key has expired since WATCH."""
    for database, key, over in session.watched:
        at_ms = database.expires.get(key)
        if at_ms is not None and not over and at_ms <= now_ms:
            return True
    return False


def forget_watches(session: Session) -> None:
    """Stop watching all keys."""
    for database, key, _ in session.watched:
        watchers = database.watchers.get(key)
        if watchers is not None:
            watchers.pop(session, None)
            if not watchers:
                del database.watchers[key]
    session.watched = []
    session.dirty_watch = False
