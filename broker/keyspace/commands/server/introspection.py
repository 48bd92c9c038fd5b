"""COMMAND: describes the commands to clients, generated from the table of commands.

Group, flags, categories and arities are those of the table. Key specifications say where the keys
are and whether the command reads or writes them, without the finer flags of Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delaylog.broker.keyspace.command import CATEGORIES, Args, Command, keys_of
from delaylog.broker.keyspace.commands.server.connection import REDIS_VERSION
from delaylog.broker.keyspace.commands.server.help_texts import summary_of
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.registry import COMMANDS, command
from delaylog.broker.keyspace.replies import Map, Members, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.globs import matcher

_FLAGS: Final = "loading stale"
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
    if entry.group == "pubsub":
        has.discard("no_multi")
    if "pubsub" in entry.categories:
        has.add("pubsub")
    if not isinstance(entry.keys, tuple):
        has.add("movablekeys")
    return [Status(flag.encode()) for flag in _SHOWN_FLAGS if flag in has]


def _key_specs(entry: Command) -> Reply:
    if not isinstance(entry.keys, tuple) or entry.keys[0] == 0:
        return []
    first, last, step = entry.keys
    flags = [b"RW", b"update"] if entry.write else [b"RO", b"access"]
    found: list[Reply] = [b"lastkey", last if last < 0 else last - first]
    found += [b"keystep", step, b"limit", 0]
    return [
        Map(
            [
                b"flags",
                Members([Status(flag) for flag in flags]),
                b"begin_search",
                Map([b"type", b"index", b"spec", Map([b"index", first])]),
                b"find_keys",
                Map([b"type", b"range", b"spec", Map(found)]),
            ]
        )
    ]


def describe(entry: Command) -> Reply:
    """Return the ten fields of a command's entry."""
    return [
        entry.name,
        entry.arity,
        Members(_flags_of(entry)),
        *entry.positions,
        Members(
            [Status(b"@%b" % name.encode()) for name in CATEGORIES if name in entry.categories]
        ),
        [],
        _key_specs(entry),
        [describe(sub) for sub in entry.subcommands.values()],
    ]


def entry_named(name: bytes) -> Command | None:
    """Find the entry of `get` or of `config|get`."""
    first, _, second = name.lower().partition(b"|")
    entry = COMMANDS.get(first)
    return entry if entry is None or not second else entry.subcommands.get(second)


def everything() -> Iterable[Command]:
    """Iterate over all commands; subcommands follow their container."""
    for entry in COMMANDS.values():
        yield entry
        yield from entry.subcommands.values()


@command("command", -1, "server", _FLAGS + " @connection")
def command_(run: Run, argv: Args) -> Reply:
    """List all commands with their flags, key positions and subcommands."""
    return [describe(entry) for entry in COMMANDS.values()]


@command("command|count", 2, "server", _FLAGS + " @connection")
def command_count(run: Run, argv: Args) -> Reply:
    """Count the commands."""
    return len(COMMANDS)


@command("command|info", -2, "server", _FLAGS + " @connection")
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


@command("command|docs", -2, "server", _FLAGS + " @connection")
def command_docs(run: Run, argv: Args) -> Reply:
    """Return the documentation of commands: [name ...]."""
    names = argv[2:] or list(COMMANDS)
    flat: list[Reply] = []
    for name in names:
        entry = entry_named(name)
        if entry is not None:
            flat += [entry.name, _document(entry)]
    return Map(flat)


@command("command|list", -2, "server", _FLAGS + " @connection")
def command_list(run: Run, argv: Args) -> Reply:
    """List the names of commands: [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]."""
    if len(argv) == 2:
        return list(COMMANDS)
    if len(argv) != 5 or argv[2].lower() != b"filterby":
        raise syntax()
    kind, value = argv[3].lower(), argv[4]
    if kind == b"module":
        return []
    if kind == b"aclcat":
        return in_category(value.decode("latin-1").lower())
    if kind == b"pattern":
        match = matcher(value, ignore_case=True)
        return [entry.name for entry in everything() if match(entry.name)]
    raise syntax()


def in_category(category: str) -> list[bytes]:
    """Return the commands of a category."""
    return [
        entry.name
        for entry in everything()
        if category in entry.categories and (not entry.subcommands or entry.arity == -1)
    ]


@command("command|getkeys", -4, "server", _FLAGS + " @connection")
def command_getkeys(run: Run, argv: Args) -> Reply:
    """Return the keys of a full command."""
    called = argv[2:]
    entry = COMMANDS.get(called[0].lower())
    if entry is not None and entry.subcommands and len(called) > 1:
        entry = entry.subcommands.get(called[1].lower())
    if entry is None:
        raise CommandError(b"ERR Invalid command specified")
    if isinstance(entry.keys, tuple) and entry.keys[0] == 0:
        raise CommandError(b"ERR The command has no key arguments")
    if not entry.takes(len(called)):
        raise CommandError(b"ERR Invalid number of arguments specified for command")
    try:
        keys = keys_of(entry, called)
    except (CommandError, IndexError):
        keys = []
    # Only scripts may be called without keys.
    if not keys and entry.group != "scripting":
        raise CommandError(b"ERR Invalid arguments specified for command")
    return keys
