"""What a command function gets to work with."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Blocked, Session
from delaylog.broker.keyspace.running.shared_state import SharedState

_SMALL_BYTES: Final = 64 << 10
"""Less is not asked for one by one."""


class Run:
    """One for all commands of a kind of caller; what changes with each call is set before it.

    A write command that changed something is logged as it was given. One whose effect would
    differ when applied again says so: `rewrite`, `also`, `no_effect`.
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
        """None = the command as it was given."""
        self.may_wait = True
        """Not inside of MULTI or a script: who would block gets its empty answer."""
        self.retried: Blocked | None = None
        """The command waited, and is tried again."""
        self.in_script = False

    @property
    def now_ms(self) -> int:
        """The time, the same for all commands of a turn."""
        return self.keyspace.now_ms

    def call(self, session: Session, command: Command, argv: Args) -> Reply:
        """Run a command without checks and log what it changed."""
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
        """Log this too, behind what `rewrite` said or other calls of this."""
        if self.effects is None:
            self.effects = []
        self.effects.append(list(argv))

    def no_effect(self) -> None:
        """Log nothing by itself: what it called has been logged, or there is nothing to apply."""
        self.effects = []

    def need(self, size: int) -> None:
        """A value is about to be made so large, by a command of few bytes. Raises CommandError."""
        if size > _SMALL_BYTES:
            refusal = self.shared.may_take(size)
            if refusal is not None:
                raise CommandError(refusal.text)

    def wait(
        self,
        argv: Args,
        keys: list[bytes],
        timeout_ms: int,
        late: Reply,
        kind: type | None = None,
    ) -> Reply:
        """Wait until one of `keys` changes and holds a value of this kind (None: anything), and run
        `argv` then; 0 = for ever.

        Return what this returns. `late` is answered when the time is up, and at once where no
        command may wait.
        """
        if not self.may_wait:
            return late
        if self.retried is not None:
            return WAITS
        assert self.command is not None
        deadline = self.shared.waits.clock_ms() + timeout_ms if timeout_ms else None
        blocked = Blocked(self.command, argv, self.database, keys, deadline, late, kind)
        self.shared.waits.begin(self.session, blocked)
        return WAITS
