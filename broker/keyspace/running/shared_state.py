"""State that the sessions over one keyspace share: clients, channels, waits, limits of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from delaylog.broker.keyspace.command import Command
from delaylog.broker.keyspace.errors import SCRIPTS_OFF, CommandError
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.running.pubsub import PubSub
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.waits import Waits
from delaylog.broker.keyspace.scans import Scans
from delaylog.broker.keyspace.scripts import FunctionLibraries, ScriptLimits, Scripts
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
    """What commands find besides the keyspace. The host sets the callables."""

    def __init__(self, keyspace: Keyspace, server: ServerState | None = None) -> None:
        self.keyspace = keyspace
        self.server = server or ServerState()
        self.sessions: dict[int, Session] = {}
        self.pubsub = PubSub()
        self.scans = Scans(keyspace.random.getrandbits(30))
        self.may_grow: Callable[[], ErrorReply | None] = lambda: None
        """What a write that takes room is answered instead, if there is none."""
        self.may_take: Callable[[int], ErrorReply | None] = lambda size: None
        """What a command is answered that would take so many bytes more, if there are not as many.
        """
        self.may_write: Callable[[], ErrorReply | None] = lambda: None
        """What a write is answered instead, if it may not be made at the moment."""
        self.out_of_touch = False
        """What this node holds may be old: only what needs no data is answered."""
        self.on_bug: Callable[[Command, Exception], None] | None = None
        """Takes note of a command that failed as none should, and ends what it left if it writes;
        None = have it raised."""
        self.scripts_allowed = True
        """Whether clients may run Lua, and load it."""
        self.script_limits: ScriptLimits | None = None
        """Set before the first script; None = the usual ones."""
        self.on_script_stopped: Callable[[], bool] = lambda: False
        """Called when a script was stopped after it had written; whether that is undone."""
        self.host: object | None = None
        """What verbs beyond the keyspace work with."""
        self.make_scripting: Callable[[], Scripting]
        """Called when a script is first needed; set by the executor."""
        self._scripting: Scripting | None = None
        self.waits = Waits(lambda: self.keyspace.now_ms)

    @property
    def scripting(self) -> Scripting:
        """Scripts and functions. Raises CommandError without Lua, and where they are off."""
        if not self.scripts_allowed:
            raise CommandError(SCRIPTS_OFF)
        if self._scripting is None:
            self._scripting = self.make_scripting()
        return self._scripting

    def refusal_of(self, command: Command) -> ErrorReply | None:
        """What a command that writes is answered instead, if it may not be run."""
        refusal = self.may_write()
        return self.may_grow() if refusal is None and command.grows else refusal

    def answer_bug(
        self, command: Command, bug: Exception, *, in_script: bool = False
    ) -> ErrorReply:
        """What a command is answered that failed as no command should.

        One that only reads has left everything as it was. One that writes may have changed what is
        in no log: nothing may be built on that, so it is the host's to end.
        """
        if self.on_bug is None:
            raise bug
        if not self.keyspace.condemned:
            self.on_bug(command, bug)
        if (command.write or self.keyspace.condemned) and not in_script:
            # Also EXEC, of which one of the commands wrote.
            raise bug
        return ErrorReply(b"ERR internal error; the server's log says which")
