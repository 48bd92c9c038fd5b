"""State that the sessions of one keyspace share: clients, channels, waits, limits of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import HELD, SCRIPTS_OFF, CommandError, no_permission
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.running.pubsub import PubSub
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.waits import Waits
from delaylog.broker.keyspace.scans import Scans
from delaylog.broker.keyspace.scripts import FunctionLibraries, Scripts
from delaylog.broker.keyspace.server_state import ServerState


class Scripting(Protocol):
    """Scripts and functions, as their commands use them."""

    scripts: Scripts

    def enter(self, caller: Session) -> Scripts:
        """Prepare to run a script for this client."""

    def functions(self) -> FunctionLibraries:
        """Return the libraries of the keyspace, compiled."""

    def keep(self, functions: FunctionLibraries) -> None:
        """Store changed libraries in the keyspace."""


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
        self.make_scripting: Callable[[], Scripting]
        """Called when a script is first needed; set by the executor."""
        self._scripting: Scripting | None = None
        self.waits = Waits(lambda: self.keyspace.now_ms)
        self.may_administer: Callable[[], ErrorReply | None] = lambda: None
        """Returns the refusal of administrative commands, which have to be audited."""
        self.on_audited: Callable[[Session, Command, Args, Reply], None] = lambda *_: None
        """Called with a command that was audited, and its reply."""
        self.on_denied: Callable[[Session, str, bytes], None] = lambda *_: None
        """Called with a client that was refused, the outcome, and the command."""

    @property
    def scripting(self) -> Scripting:
        """Scripts and functions. Raises CommandError without Lua, and where scripts are off."""
        if not self.scripts_allowed:
            raise CommandError(SCRIPTS_OFF)
        if self._scripting is None:
            self._scripting = self.make_scripting()
        return self._scripting

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
        return ErrorReply(no_permission(command.name).text)

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
