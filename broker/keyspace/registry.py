"""The table of commands.

A module in `commands/` registers its functions with `@command`. A function gets the `Run` and the
whole argv (name first, arguments are bytes), and returns a reply or raises CommandError.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final, TypeAlias

from delaylog.broker.keyspace.command import NO_KEYS, Args, Command, KeyPositions
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.running.run import Run

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
    return word[:most].partition(b"\0")[0]
