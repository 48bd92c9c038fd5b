"""COMMAND: the table of commands as clients read it, generated from the table itself.

Flags and numbers are as registered. Categories follow from flags and from the family; key
specifications say where keys stand, and whether they are read or written, but nothing finer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delaylog.broker.keyspace.commands.connection import REDIS_VERSION
from delaylog.broker.keyspace.commands.help_texts import summary_of
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.globs import matcher
from delaylog.broker.keyspace.registry import COMMANDS, NO_KEYS, Args, Command, command, keys_of
from delaylog.broker.keyspace.replies import Map, Members, Reply, Status
from delaylog.broker.keyspace.run import Run

_FLAGS: Final = "loading stale"
# In the order in which they are listed.
_SHOWN_FLAGS: Final = (
    *("write", "readonly", "denyoom", "admin", "pubsub", "noscript", "blocking", "loading"),
    *("stale", "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "no_mandatory_keys"),
    *("no_async_loading", "no_multi", "movablekeys", "allow_busy"),
)
CATEGORIES: Final = (
    *(b"keyspace", b"read", b"write", b"set", b"sortedset", b"list", b"hash", b"string"),
    *(b"bitmap", b"hyperloglog", b"geo", b"stream", b"pubsub", b"admin", b"fast", b"slow"),
    *(b"blocking", b"dangerous", b"connection", b"transaction", b"scripting"),
)
# The family by the start of the module's name; the first that fits.
_FAMILIES: Final = (
    *(("string", "string"), ("counter", "string")),
    *(("list", "list"), ("hash", "hash"), ("sets", "set"), ("sorted_set", "sorted-set")),
    *(("stream", "stream"), ("channels", "pubsub"), ("transactions", "transactions")),
    *(("script", "scripting"), ("function", "scripting")),
    *(("connection", "connection"), ("clients", "connection"), ("introspection", "server")),
    *(("generic", "generic"), ("expiry", "generic"), ("objects", "generic")),
    *(("dumping", "generic"),),
)
_CATEGORY_OF: Final = {
    "sorted-set": b"sortedset",
    "generic": b"keyspace",
    "transactions": b"transaction",
    "server": None,
    "module": None,
}
_DANGEROUS: Final = {
    *(b"flushall", b"flushdb", b"keys", b"restore", b"restore-asking", b"swapdb", b"info", b"role"),
}
_ADMIN: Final = {b"role"}
"""Without the flag of that name."""
_CONNECTION: Final = {b"wait", b"command"}
_FIRST_KEY: Final = {b"zunionstore", b"zinterstore", b"zdiffstore"}
"""Their first argument is always a key, wherever the others stand."""


def group_of(entry: Command) -> str:
    """The family, by the names of COMMAND DOCS."""
    name = entry.name.partition(b"|")[0]
    if name.startswith(b"dl."):
        return "module"
    if name in COMMANDS:
        entry = COMMANDS[name]
    one = next(iter(entry.subcommands.values()), entry)
    module = one.function.__module__.rpartition(".")[2]
    return next((group for start, group in _FAMILIES if module.startswith(start)), "server")


def categories_of(entry: Command) -> list[bytes]:
    """The categories of ACL."""
    flags, group = entry.flags, group_of(entry)
    has = {b"fast" if "fast" in flags else b"slow"}
    if entry.name.partition(b"|")[0] in _CONNECTION:
        has.add(b"connection")
    elif not entry.subcommands and (group != "pubsub" or entry.name != b"pubsub|help"):
        family = _CATEGORY_OF.get(group, group.encode())
        if family is not None:
            has.add(family)
    for flag in ("write", "blocking", "admin"):
        if flag in flags:
            has.add(flag.encode())
    if "readonly" in flags and group != "scripting":
        has.add(b"read")
    if entry.name in _ADMIN:
        has.add(b"admin")
    if "admin" in flags or entry.name in _DANGEROUS:
        has.add(b"dangerous")
    return [category for category in CATEGORIES if category in has]


def _flags_of(entry: Command) -> list[Status]:
    has = set(entry.flags)
    # Here it says that subscribed clients may send it, there that it is about channels.
    has.discard("pubsub")
    if group_of(entry) == "pubsub":
        has.discard("no_multi")
        if not entry.subcommands and entry.name != b"pubsub|help":
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
    """The ten members of a command's entry."""
    places = (1, 1, 1) if entry.name in _FIRST_KEY else NO_KEYS
    if isinstance(entry.keys, tuple):
        places = entry.keys
    return [
        entry.name,
        entry.arity,
        Members(_flags_of(entry)),
        *places,
        Members([Status(b"@" + category) for category in categories_of(entry)]),
        [],
        _key_specs(entry),
        [describe(sub) for sub in entry.subcommands.values()],
    ]


def entry_named(name: bytes) -> Command | None:
    """The entry of `get` or of `config|get`."""
    first, _, second = name.lower().partition(b"|")
    entry = COMMANDS.get(first)
    return entry if entry is None or not second else entry.subcommands.get(second)


def everything() -> Iterable[Command]:
    """All commands, subcommands behind their containers."""
    for entry in COMMANDS.values():
        yield entry
        yield from entry.subcommands.values()


@command("command", -1, _FLAGS)
def command_(run: Run, argv: Args) -> Reply:
    """All commands with their flags, the places of their keys, and their subcommands."""
    return [describe(entry) for entry in COMMANDS.values()]


@command("command|count", 2, _FLAGS)
def command_count(run: Run, argv: Args) -> Reply:
    """How many commands there are."""
    return len(COMMANDS)


@command("command|info", -2, _FLAGS)
def command_info(run: Run, argv: Args) -> Reply:
    """The same as COMMAND, of these commands."""
    if len(argv) == 2:
        return command_(run, argv)
    found = [entry_named(name) for name in argv[2:]]
    return [None if entry is None else describe(entry) for entry in found]


def _document(entry: Command) -> Reply:
    flat: list[Reply] = [b"summary", summary_of(entry), b"since", REDIS_VERSION]
    flat += [b"group", group_of(entry).encode()]
    if entry.subcommands:
        subs: list[Reply] = []
        for sub in entry.subcommands.values():
            subs += [sub.name, _document(sub)]
        flat += [b"subcommands", Map(subs)]
    return Map(flat)


@command("command|docs", -2, _FLAGS)
def command_docs(run: Run, argv: Args) -> Reply:
    """What commands are for: [name ...]."""
    names = argv[2:] or list(COMMANDS)
    flat: list[Reply] = []
    for name in names:
        entry = entry_named(name)
        if entry is not None:
            flat += [entry.name, _document(entry)]
    return Map(flat)


@command("command|list", -2, _FLAGS)
def command_list(run: Run, argv: Args) -> Reply:
    """The names of commands: [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]."""
    if len(argv) == 2:
        return list(COMMANDS)
    if len(argv) != 5 or argv[2].lower() != b"filterby":
        raise syntax()
    kind, value = argv[3].lower(), argv[4]
    if kind == b"module":
        return []
    if kind == b"aclcat":
        return in_category(value.lower())
    if kind == b"pattern":
        match = matcher(value, ignore_case=True)
        return [entry.name for entry in everything() if match(entry.name)]
    raise syntax()


def in_category(category: bytes) -> list[bytes]:
    """The commands of a category."""
    return [
        entry.name
        for entry in everything()
        if category in categories_of(entry) and (not entry.subcommands or entry.arity == -1)
    ]


def _keys(run: Run, argv: Args) -> tuple[Command, list[bytes]]:
    """The keys of the command that stands behind two words."""
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
    if not keys and group_of(entry) != "scripting":
        raise CommandError(b"ERR Invalid arguments specified for command")
    return entry, keys


@command("command|getkeys", -4, _FLAGS)
def command_getkeys(run: Run, argv: Args) -> Reply:
    """The keys that a whole command names."""
    return _keys(run, argv)[1]


@command("command|getkeysandflags", -4, _FLAGS)
def command_getkeysandflags(run: Run, argv: Args) -> Reply:
    """The same, with whether they are read or written."""
    entry, keys = _keys(run, argv)
    flags = [b"RW", b"update"] if entry.write else [b"RO", b"access"]
    return [[key, Members([Status(flag) for flag in flags])] for key in keys]
