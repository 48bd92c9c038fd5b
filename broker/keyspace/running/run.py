"""The context that a command function runs in."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Blocked, Session
from delaylog.broker.keyspace.running.shared_state import SharedState

_SMALL_BYTES: Final = 64 << 10
"""Memory for a smaller value is not checked."""


class Run:
    """One for clients and one for scripts; `session`, `command` and the like are set for each call.

    A write command that changed something is logged as the client sent it. A command whose outcome
    would differ when applied again replaces that: `rewrite`, `also`, `no_effect`.
    """

    __slots__ = (
        "command",
        "database",
        "effects",
        "in_script",
        "keyspace",
        "may_wait",
        "retried",
        "session",
        "shared",
    )

    def __init__(self, shared: SharedState, session: Session) -> None:
        self.shared = shared
        self.keyspace = shared.keyspace
        self.session = session
        self.database = session.database
        self.command: Command | None = None
        self.effects: list[Args] | None = None
        """None = the command as the client sent it."""
        self.may_wait = True
        """False inside MULTI and scripts: a blocking command gets its timeout reply at once."""
        self.retried: Blocked | None = None
        """The blocked command that is tried again, or None."""
        self.in_script = False

    @property
    def now_ms(self) -> int:
        """The time; it is the same for all commands of a turn."""
        return self.keyspace.now_ms

    def call(self, session: Session, command: Command, argv: Args) -> Reply:
        """Run a command without checks and log what it changed."""
        if command.administrative and (refusal := self.shared.may_administer()) is not None:
            return refusal
        dirty = self.keyspace.dirty
        self.session = session
        self.database = session.database
        self.command = command
        self.effects = None
        try:
            reply = command.function(self, argv)
        except CommandError as error:
            reply = ErrorReply(error.text)
            self.shared.server.errors_answered += 1
        except Exception as bug:
            reply = self.shared.answer_bug(command, bug)
        if self.keyspace.dirty != dirty and command.write:
            self.log(argv)
        if command.audited:
            self.shared.on_audited(session, command, argv, reply)
        return reply

    def log(self, argv: Args) -> None:
        """Log what a command changed."""
        number = self.database.number
        if self.effects is None:
            self.keyspace.log(number, argv)
        else:
            for effect in self.effects:
                self.keyspace.log(number, effect)

    def rewrite(self, *argv: bytes) -> None:
        """Log this instead of the command."""
        self.effects = [list(argv)]

    def also(self, *argv: bytes) -> None:
        """Log this too, after the effects recorded so far."""
        if self.effects is None:
            self.effects = []
        self.effects.append(list(argv))

    def no_effect(self) -> None:
        """Log nothing: the commands that it called were logged, or there is nothing to apply."""
        self.effects = []

    def need(self, size: int) -> None:
        """Check the memory for a value that a short command makes. Raises CommandError."""
        if size > _SMALL_BYTES:
            refusal = self.shared.may_take(size)
            if refusal is not None:
                raise CommandError(refusal.text)

    def wait(
        self,
        argv: Args,
        keys: list[bytes],
        timeout_ms: int,
        timeout_reply: Reply,
        kind: type | None = None,
    ) -> Reply:
        """Block until one of `keys` changes and has a value of this kind (None = any), then run
        `argv`. A timeout of 0 = none.

        The command returns the result of this call. `timeout_reply` is the reply at the timeout,
        and at once where no command may block.
        """
        if not self.may_wait:
            return timeout_reply
        if self.retried is not None:
            return WAITS
        assert self.command is not None
        deadline = self.shared.waits.clock_ms() + timeout_ms if timeout_ms else None
        blocked = Blocked(self.command, argv, self.database, keys, deadline, timeout_reply, kind)
        self.shared.waits.begin(self.session, blocked)
        return WAITS
