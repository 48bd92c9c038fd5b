"""COMMAND: describes the commands to clients, generated from the table of commands.

Groups, flags, arities and key positions are those of the table. There are no categories, tips and
key specifications.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.commands.server.connection import REDIS_VERSION
from delaylog.broker.keyspace.commands.server.help_texts import summary_of
from delaylog.broker.keyspace.registry import COMMANDS, command
from delaylog.broker.keyspace.replies import Map, Members, Reply, Status
from delaylog.broker.keyspace.running.run import Run

_FLAGS: Final = "loading stale own"
# In the order in which they are listed.
_SHOWN_FLAGS: Final = (
    *("write", "readonly", "denyoom", "admin", "pubsub", "noscript", "blocking", "loading"),
    *("stale", "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys"),
    *("no_async_loading", "no_multi", "movablekeys", "allow_busy"),
)


def _flags_of(entry: Command) -> list[Status]:
    has = set(entry.flags)
    # In the table `pubsub` means that subscribed clients may send the command; in Redis it means
    # that the command is about channels.
    has.discard("pubsub")
    if "channels" in has:
        has.add("pubsub")
    return [Status(flag.encode()) for flag in _SHOWN_FLAGS if flag in has]


def describe(entry: Command) -> Reply:
    """Return the ten fields of a command's entry."""
    return [
        entry.name,
        entry.arity,
        Members(_flags_of(entry)),
        *entry.keys,
        Members([]),
        [],
        [],
        [describe(sub) for sub in entry.subcommands.values()],
    ]


def entry_named(name: bytes) -> Command | None:
    """Find the entry of `get` or of `config|get`."""
    first, _, second = name.lower().partition(b"|")
    entry = COMMANDS.get(first)
    return entry if entry is None or not second else entry.subcommands.get(second)


@command("command", -1, "server", _FLAGS)
def command_(run: Run, argv: Args) -> Reply:
    """List all commands with their flags, key positions and subcommands."""
    return [describe(entry) for entry in COMMANDS.values()]


@command("command|count", 2, "server", _FLAGS)
def command_count(run: Run, argv: Args) -> Reply:
    """Count the commands."""
    return len(COMMANDS)


@command("command|info", -2, "server", _FLAGS)
def command_info(run: Run, argv: Args) -> Reply:
    """COMMAND for the named commands."""
    if len(argv) == 2:
        return command_(run, argv)
    found = [entry_named(name) for name in argv[2:]]
    return [None if entry is None else describe(entry) for entry in found]


def _document(entry: Command) -> Reply:
    flat: list[Reply] = [b"summary", summary_of(entry), b"since", REDIS_VERSION]
    flat += [b"group", entry.group.encode()]
    if entry.subcommands:
        subs: list[Reply] = []
        for sub in entry.subcommands.values():
            subs += [sub.name, _document(sub)]
        flat += [b"subcommands", Map(subs)]
    return Map(flat)


@command("command|docs", -2, "server", _FLAGS)
def command_docs(run: Run, argv: Args) -> Reply:
    """Return the documentation of commands: [name ...]."""
    names = argv[2:] or list(COMMANDS)
    flat: list[Reply] = []
    for name in names:
        entry = entry_named(name)
        if entry is not None:
            flat += [entry.name, _document(entry)]
    return Map(flat)
