"""The table of commands, and the context that a command function runs in.

A module in `commands/` registers its functions with `@command`. A function gets the `Run` and the
whole argv (name first, arguments are bytes), and returns a reply or raises CommandError.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final, TypeAlias

from delaylog.broker.keyspace.command import NO_KEYS, Args, Command, KeyPositions
from delaylog.broker.keyspace.errors import CommandError, c_text
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Blocked, Session
from delaylog.broker.keyspace.running.shared_state import SharedState

# ---------------------------------------------------------------------------------- the context

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


# ------------------------------------------------------------------------------------ the table

Function: TypeAlias = Callable[[Run, Args], Reply]
Many: TypeAlias = Callable[[Run, list[Args]], bool]
_FIRST: Final = itemgetter(0)
_SHOWN_BYTES: Final = 128
"""An error shows this number of bytes of an unknown command."""

COMMANDS: Final[dict[bytes, Command]] = {}
"""By lower-case name."""
WORDS: Final[dict[bytes, Command]] = {}
"""By first word in lower and upper case, without the commands that have subcommands."""


def command(
    name: str,
    arity: int,
    group: str,
    flags: str = "",
    keys: KeyPositions = NO_KEYS,
) -> Callable[[Function], Function]:
    """Register a function as `name`, or as `name|subcommand`."""

    def register(function: Function) -> Function:
        words = frozenset(flags.split())
        add(Command(name.encode(), arity, group, words, keys, function))
        return function

    return register


def many(name: str) -> Callable[[Many], Many]:
    """Register a function that runs a pipeline of one command, all calls with the same word count.

    It has the same outcome as the calls one by one: it appends their replies to `session.out`, logs
    and counts their changes, and returns True. If a call needs the general path, it changes nothing
    and returns False, and the calls run one by one.
    """

    def register(function: Many) -> Many:
        COMMANDS[name.encode()].many = function
        return function

    return register


def are_alike(commands: list[Args]) -> bool:
    """Whether all commands have the same first word and the same number of words."""
    first = commands[0]
    return list(map(_FIRST, commands)).count(first[0]) == len(commands) and list(
        map(len, commands)
    ).count(len(first)) == len(commands)


def add(entry: Command) -> None:
    """Put an entry into the table."""
    name, _, sub = entry.name.partition(b"|")
    if not sub:
        assert name not in COMMANDS, f"{name!r} is registered twice"
        COMMANDS[name] = WORDS[name] = WORDS[name.upper()] = entry
        return
    container = COMMANDS.get(name)
    if container is None:
        container = COMMANDS[name] = Command(name, -2, entry.group, frozenset(), NO_KEYS, None)
    # A word such as COMMAND is also a command without subcommand, which `find_command` finds.
    WORDS.pop(name, None)
    WORDS.pop(name.upper(), None)
    assert sub not in container.subcommands, f"{entry.name!r} is registered twice"
    container.subcommands[sub] = entry


def find_command(argv: Args) -> Command | ErrorReply:
    """Return the entry for an argv, or the error if there is none."""
    word = argv[0].lower()
    command = COMMANDS.get(word)
    if command is None:
        return ErrorReply(_unknown(argv))
    if not command.subcommands:
        return command
    if len(argv) < 2 and command.arity == -1:
        return command
    if len(argv) < 2:
        return ErrorReply(b"ERR wrong number of arguments for '%b' command" % word)
    sub = command.subcommands.get(argv[1].lower())
    if sub is None:
        shown = _excerpt(argv[1], _SHOWN_BYTES)
        text = b"ERR unknown subcommand '%b'. Try %b HELP." % (shown, word.upper())
        return ErrorReply(text)
    return sub


def only_reads(argv: Args) -> bool:
    """Whether a command only reads, so that it may run again."""
    found = WORDS.get(argv[0]) or find_command(argv)
    return not isinstance(found, ErrorReply) and "readonly" in found.flags


def _unknown(argv: Args) -> bytes:
    shown = b""
    for word in argv[1:]:
        if len(shown) >= _SHOWN_BYTES:
            break
        shown += b"'%b' " % _excerpt(word, _SHOWN_BYTES - len(shown))
    name = _excerpt(argv[0], _SHOWN_BYTES)
    return b"ERR unknown command '%b', with args beginning with: %b" % (name, shown)


def _excerpt(word: bytes, most: int) -> bytes:
    """Return a client's word for an error: up to `most` bytes, cut at a zero byte."""
    return c_text(word[:most])
