"""State that the sessions of one keyspace share: the server, channels, blocked commands, scripts.

It is pure: everything that has to be looked up (users, role, memory, addresses, the leader) comes
from callables that the host sets. Their defaults serve tests without a host: one user with all
rights.

A database lists the sessions that wait for each key, oldest first, and the executor runs their
commands again. `Waits` begins waits, and ends them with or without a reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import HELD, NO_PERMISSION, SCRIPTS_OFF, CommandError
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import ErrorReply, Push, Reply
from delaylog.broker.keyspace.running.session import Blocked, Session
from delaylog.broker.keyspace.scans import Scans
from delaylog.broker.keyspace.values.globs import Match, matcher
from delaylog.wheel import DelayQueue

if TYPE_CHECKING:
    from delaylog.broker.keyspace.commands.scripting import ScriptingHost
    from delaylog.broker.keyspace.registry import Run


# ------------------------------------------------------------------------------------- channels

_HEAD: Final = re.compile(rb"[^*?\[\\]*").match
"""The literal prefix of a pattern."""


class PubSub:
    """Delivers messages at once to the present subscribers."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        self._matchers: dict[bytes, tuple[bytes, Match | None]] = {}
        """Pattern -> its prefix, and its matcher once one was needed."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message; returns the number of recipients."""
        count = 0
        for session in self.channels.get(channel, ()):
            session.deliver(Push([b"message", channel, message]))
            count += 1
        for pattern, sessions in self.patterns.items():
            if self._matches(pattern, channel):
                for session in sessions:
                    session.deliver(Push([b"pmessage", pattern, channel, message]))
                    count += 1
        return count

    def _matches(self, pattern: bytes, channel: bytes) -> bool:
        """Whether a subscribed pattern matches.

        Compiling a matcher takes a hundred times as long as calling it, and there may be more
        patterns than the shared cache of matchers keeps.
        """
        matchers = self._matchers
        entry = matchers.get(pattern)
        if entry is None:
            if len(matchers) > 2 * len(self.patterns):
                matchers.clear()
            head = _HEAD(pattern)
            assert head is not None
            entry = matchers[pattern] = (head[0], None)
        start, match = entry
        if not channel.startswith(start):
            return False
        if match is None:
            match = matcher(pattern)
            matchers[pattern] = (start, match)
        return bool(match(channel))

    def leave(self, session: Session) -> None:
        """Remove all subscriptions of a client."""
        for mine, all_of_them in (
            (session.channels, self.channels),
            (session.patterns, self.patterns),
        ):
            for name in mine:
                self.drop(all_of_them, name, session)
            mine.clear()

    @staticmethod
    def drop(table: dict[bytes, dict[Session, None]], name: bytes, session: Session) -> None:
        """Remove one subscriber of a channel or pattern."""
        sessions = table.get(name)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del table[name]


# ----------------------------------------------------------------------------- blocked commands


class Waits:
    """The waits of one executor's sessions."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.sessions: dict[int, Session] = {}
        """Sessions with a blocked command, by number."""
        self.clock_ms = clock_ms
        """The clock of the timeouts; the host sets a monotonic one."""
        self._deadlines: DelayQueue[int] = DelayQueue()

    def begin(self, session: Session, blocked: Blocked) -> None:
        """Block a session on its keys; called by `Run.wait`."""
        session.blocked = blocked
        self.sessions[session.number] = session
        if blocked.deadline_ms is not None:
            self._deadlines.push(session.number, blocked.deadline_ms)
        for key in blocked.keys:
            blocked.database.waiters.setdefault(key, {})[session.number] = None

    def end(self, session: Session) -> Blocked | None:
        """End a wait without a reply; returns the blocked command, or None."""
        blocked, session.blocked = session.blocked, None
        if blocked is not None:
            del self.sessions[session.number]
            self._deadlines.discard(session.number)
            for key in blocked.keys:
                waiters = blocked.database.waiters.get(key)
                if waiters is not None:
                    waiters.pop(session.number, None)
                    if not waiters:
                        del blocked.database.waiters[key]
        return blocked

    def end_late(self) -> int | None:
        """End the waits that timed out; returns the next deadline, by `clock_ms`, or None."""
        now_ms = self.clock_ms()
        while (number := self._deadlines.pop_due(now_ms)) is not None:
            session = self.sessions[number]
            blocked = self.end(session)
            assert blocked is not None
            session.deliver(blocked.timeout_reply)
        return self._deadlines.head_ms

    def end_held(self, reply: Reply) -> None:
        """End the waits of commands that a hold refuses, with this reply."""
        for session in list(self.sessions.values()):
            if session.blocked is not None and session.blocked.command.held_back:
                self.end(session)
                session.deliver(reply)

    def end_all(self) -> None:
        """End all waits without a reply, and close the connections of their clients.

        Client libraries repeat a command whose connection broke. They raise an error reply to the
        program, which ends workers of job systems.
        """
        for session in list(self.sessions.values()):
            self.end(session)
            session.close()


# ---------------------------------------------------------------------------------------- users

DEFAULT: Final = b"default"
"""The name of clients that have not authenticated; with AUTH it means the owner of the secret."""
WRONG: Final = b"WRONGPASS invalid username-password pair or user is disabled."


class Users(Protocol):
    """What commands ask the host about users."""

    @property
    def required(self) -> bool:
        """Whether clients have to authenticate."""

    def enter(self, session: Session) -> None:
        """Set the user and the rights of a new client, or of a client after RESET."""

    def login(self, session: Session, name: bytes, secret: bytes) -> None:
        """Authenticate a client. Raises CommandError."""

    def later(self, run: Run, attempt: Callable[[], Reply]) -> Reply | None:
        """The reply of a login that is tried again soon, because this node may not have the newest
        users yet; None if it has them.
        """


class OneUser:
    """A server without users: every client is the user `default`, who may do everything."""

    required = False

    def enter(self, session: Session) -> None:
        """Accept every client."""
        session.authenticated = True

    def login(self, session: Session, name: bytes, secret: bytes) -> None:  # noqa: ARG002
        """Refuse every secret, since there are none."""
        raise CommandError(WRONG)

    def later(self, run: Run, attempt: Callable[[], Reply]) -> Reply | None:  # noqa: ARG002
        """Return None: there are no newer users."""
        return None


# ----------------------------------------------------------------------------------- the server

RATE_MS: Final = 1_000
"""Commands per second are averaged over at least this time."""

Facts = dict[bytes, bytes]
"""Fields of INFO by name."""


@dataclass(slots=True)
class ServerState:
    """Shared by all sessions; the host sets the callables."""

    users: Users = field(default_factory=OneUser)
    given: dict[bytes, bytes] = field(default_factory=dict)
    """Settings that the host gives, which CONFIG GET shows."""
    commands_run: int = 0
    errors_answered: int = 0
    connections: int = 0
    """Since the start."""
    refused_connections: int = 0
    failed_logins: int = 0
    started_ms: int = 0
    run_id: bytes = b"0" * 40
    process_id: int = 0
    facts: Callable[[], Facts] = dict
    """Fields of INFO from the host (memory and the like), which replace the defaults."""
    delaylog_facts: Callable[[], Facts] = dict
    """Fields of the Delaylog section of INFO."""
    role: Callable[[], bytes] = lambda: b"master"
    """`master` where writes are accepted, otherwise `slave`."""
    on_wrong_password: Callable[[Session, bytes], None] = lambda session, secret: None
    """Called with a client that sent a wrong secret."""
    login_wait_s: Callable[[Session, Iterable[bytes]], float] = lambda session, secrets: 0.0
    """Returns the seconds until these secrets of a client may be checked, after wrong ones."""
    leader: Callable[[], tuple[bytes, int] | None] = lambda: None
    """Host and port of the leader's endpoint; None = this node, or unknown (see `role`)."""
    address: tuple[bytes, int] = (b"127.0.0.1", 0)
    """The address that the endpoint listens on."""
    _rate_samples: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def commands_a_second(self, now_ms: int) -> int:
        """Return the recent number of commands per second, measured between calls of this."""
        older, newer = self._rate_samples
        if newer == (0, 0):
            newer = older = (self.started_ms, 0)
        if now_ms - newer[0] >= RATE_MS:
            older, newer = newer, (now_ms, self.commands_run)
        self._rate_samples = (older, newer)
        passed_ms = now_ms - older[0]
        return (self.commands_run - older[1]) * 1000 // passed_ms if passed_ms > 0 else 0


# ------------------------------------------------------------------------------------ all of it


class SharedState:
    """The state that commands use besides the keyspace. The host sets the callables."""

    def __init__(self, keyspace: Keyspace, server: ServerState | None = None) -> None:
        self.keyspace = keyspace
        self.server = server or ServerState()
        self.sessions: dict[int, Session] = {}
        self.pubsub = PubSub()
        self.scans = Scans(keyspace.random.getrandbits(30))
        self.may_grow: Callable[[], ErrorReply | None] = lambda: None
        """Returns the error for writes that need disk space or memory, or None."""
        self.may_take: Callable[[int], ErrorReply | None] = lambda size: None
        """Returns the error for a command that needs this number of bytes more, or None."""
        self.may_write: Callable[[], ErrorReply | None] = lambda: None
        """Returns the error for writes on a node that does not take them now, or None."""
        self.held: Callable[[], bool] = lambda: False
        """Whether the broker is held, so that no key may change."""
        self.out_of_touch = False
        """The data of this node may be stale: only commands that need no data run."""
        self.on_bug: Callable[[Command, Exception], None] | None = None
        """Called with a command that failed with an unexpected exception, which it logs; if the
        command writes, it discards the keyspace. None = raise the exception."""
        self.scripts_allowed = True
        """Whether clients may load and run Lua."""
        self.on_script_stopped: Callable[[], bool] = lambda: False
        """Called when a script was stopped after a write; returns whether the write is undone."""
        self.host: object | None = None
        """The state of verbs that are not commands of the keyspace."""
        self.make_scripting: Callable[[], ScriptingHost]
        """Called when a script is first needed; set by the executor."""
        self._scripting: ScriptingHost | None = None
        self.waits = Waits(lambda: self.keyspace.now_ms)
        self.may_administer: Callable[[], ErrorReply | None] = lambda: None
        """Returns the refusal of administrative commands, which have to be audited."""
        self.on_audited: Callable[[Session, Command, Args, Reply], None] = lambda *_: None
        """Called with a command that was audited, and its reply."""
        self.on_denied: Callable[[Session, str, bytes], None] = lambda *_: None
        """Called with a client that was refused, the outcome, and the command."""

    @property
    def scripting(self) -> ScriptingHost:
        """Scripts and functions. Raises CommandError without Lua, and where scripts are off."""
        if not self.scripts_allowed:
            raise CommandError(SCRIPTS_OFF)
        if self._scripting is None:
            self._scripting = self.make_scripting()
        return self._scripting

    @property
    def blocked_clients(self) -> int:
        """The number of clients that wait in a command."""
        return sum([session.is_blocked for session in self.sessions.values()])

    def lacks_data(self, session: Session, command: Command) -> bool:
        """Whether a command has to wait for a leader.

        A node without a leader may not know which users were removed, so users may not do more
        there than look after their own connections.
        """
        return self.out_of_touch and (
            "stale" not in command.flags or (session.caller is not None and not command.harmless)
        )

    def denied(self, session: Session, command: Command) -> ErrorReply | None:
        """Return the error for a command that the user may not run, or None if it may."""
        if not (session.limited and command.guarded):
            return None
        self.on_denied(session, "forbidden", command.name)
        return ErrorReply(NO_PERMISSION % command.name)

    def refusal_of(self, command: Command) -> ErrorReply | None:
        """Return the error for a command that writes, or None if it may run."""
        refusal = self.may_write()
        if refusal is None and command.held_back and self.held():
            return ErrorReply(HELD)
        return self.may_grow() if refusal is None and command.grows else refusal

    def answer_bug(
        self, command: Command, bug: Exception, *, in_script: bool = False
    ) -> ErrorReply:
        """Return the reply to a command that failed with an unexpected exception.

        A command that only reads has changed nothing. A command that writes may have made changes
        that are not in the log, so the exception is raised and the host discards the keyspace.
        """
        if self.on_bug is None:
            raise bug
        if not self.keyspace.condemned:
            self.on_bug(command, bug)
        if (command.write or self.keyspace.condemned) and not in_script:
            # Also EXEC, if one of its commands wrote.
            raise bug
        return ErrorReply(b"ERR internal error; see the server's log")
