"""A call of each command of the live registry, on given keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from delaylog.broker.keyspace.command import Command
from delaylog.broker.keyspace.commands import all_commands  # noqa: F401 (fills the table)
from delaylog.broker.keyspace.registry import COMMANDS

WORDS = {
    name: words.split(",")
    for names, words in (
        ("eval eval_ro", "return 1,1,KEY"),
        ("evalsha evalsha_ro", f"{'0' * 40},1,KEY"),
        ("fcall fcall_ro", "f,1,KEY"),
        ("zunion zinter zdiff zintercard sintercard", "2,KEY,KEY"),
        ("zunionstore zinterstore zdiffstore", "KEY,1,KEY"),
        ("lmpop", "1,KEY,left"),
        ("zmpop", "1,KEY,min"),
        ("blmpop", "0,1,KEY,left"),
        ("bzmpop", "0,1,KEY,min"),
        ("xread", "streams,KEY,0"),
        ("xreadgroup", "group,g,c,streams,KEY,>"),
    )
    for name in names.split()
}
"""Words of commands whose keys are counted by a number or follow a word."""


def every_command() -> Iterator[Command]:
    """Every command but the verbs of the delay log; subcommands instead of their container."""
    for command in COMMANDS.values():
        if command.group != "module":
            if not command.subcommands or command.arity == -1:
                yield command
            yield from command.subcommands.values()


def has_keys(command: Command) -> bool:
    """Whether a command names keys."""
    return command.positions[0] > 0 or command.name.decode() in WORDS


def call_of(command: Command, key: Callable[[], str]) -> list[str]:
    """A call of a command; `key` gives each of its keys."""
    words = command.name.decode().split("|")
    if words[-1] in WORDS:
        return [*words, *(key() if word == "KEY" else word for word in WORDS[words[-1]])]
    argv = [*words, *["1"] * (abs(command.arity) - len(words))]
    first, last, step = command.positions
    if first:
        argv += ["1"] * (first + 1 - len(argv))
        stop = (len(argv) + last if last < 0 else last) + 1
        argv += ["1"] * (stop - len(argv))
        for at in range(first, stop, step):
            argv[at] = key()
    return argv


def is_for_all(command: Command) -> bool:
    """Whether rules do not concern a command: the connection, SENTINEL and ACL."""
    own = "connection" in command.categories and "dangerous" not in command.categories
    family = command.name.decode().partition("|")[0]
    return own or "no_auth" in command.flags or family in ("acl", "sentinel")
