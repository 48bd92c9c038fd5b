"""What the server says of itself: INFO, CONFIG GET, TIME, ROLE, SENTINEL, COMMAND and HELP.

INFO has facts for monitoring tools, in the sections and names of Redis 7.0: the fields that are
true here and those that tools require. Fields from the host (`ServerState.facts`) replace the
defaults. The section Delaylog has the broker's own facts. CONFIG GET has the settings of Redis that
have a meaning here; clients cannot change them.

COMMAND and HELP are generated from the table of commands: groups, flags, arities, key positions and
docstrings. There are no categories, tips and key specifications.

SENTINEL returns the leader's address to clients that look for it through Redis Sentinel. A client
may use any node as its sentinel, and any name for the master. The node returns the address at which
the leader accepts Redis clients. There are no real sentinels, so lists of sentinels are empty.
Replicas are not listed either, because followers may answer reads with stale data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.commands.connection import REDIS_VERSION
from delaylog.broker.keyspace.registry import COMMANDS, Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Map, Members, Reply, Status, Verbatim
from delaylog.broker.keyspace.running.shared_state import ServerState
from delaylog.broker.keyspace.values.globs import matcher

# ----------------------------------------------------------------------------------------- HELP


def add_help() -> None:
    """Add a HELP subcommand to every command with subcommands, after all others are registered."""
    for name, entry in COMMANDS.items():
        if entry.subcommands:
            command(f"{name.decode()}|help", 2, entry.group, "loading stale own")(_help)


def summary_of(entry: Command) -> bytes:
    """Return the first line of a command's docstring, without the full stop."""
    text = entry.function.__doc__ or ""
    return text.strip().partition("\n")[0].rstrip(".").encode()


def _help(run: Run, argv: Args) -> Reply:
    """List the subcommands."""
    name = argv[0].lower()
    lines = [b"%b <subcommand> [<arg> [value] [opt] ...]. Subcommands are:" % name.upper()]
    for sub, entry in sorted(COMMANDS[name].subcommands.items()):
        lines += [sub.upper(), b"    %b." % summary_of(entry)]
    return [Status(line) for line in lines]


# -------------------------------------------------------------------------------------- COMMAND

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


# --------------------------------------------------------------------------- CONFIG, TIME, ROLE

SETTINGS: Final = {
    b"appendfsync": b"everysec",
    b"appendonly": b"no",
    b"bind": b"127.0.0.1",
    b"client-query-buffer-limit": b"%d" % 2**30,
    b"databases": b"16",
    b"maxclients": b"10000",
    b"maxmemory": b"0",
    b"maxmemory-policy": b"noeviction",
    b"notify-keyspace-events": b"",
    b"port": b"6379",
    b"proto-max-bulk-len": b"%d" % 2**29,
    b"save": b"",
    b"timeout": b"0",
}
"""Their defaults; the host may give other values (`ServerState.given`)."""


def value_of(server: ServerState, name: bytes) -> bytes:
    """Return the value of a setting."""
    return server.given.get(name, SETTINGS[name])


@command("config|get", -3, "server", "admin noscript loading stale")
def config_get(run: Run, argv: Args) -> Reply:
    """List the settings whose names match one of the patterns."""
    server = run.shared.server
    found: dict[bytes, bytes] = {}
    for pattern in argv[2:]:
        taken = {name.lower() for name in found}
        name = pattern.lower()
        if name in SETTINGS:
            if name not in taken:
                found[pattern] = value_of(server, name)
            continue
        match = matcher(pattern, ignore_case=True)
        found |= {
            name: value_of(server, name) for name in SETTINGS if name not in taken and match(name)
        }
    return Map([text for pair in found.items() for text in pair])


# --------------------------------------------------------------------------- clock and role


@command("time", 1, "server", "loading stale fast")
def time(run: Run, argv: Args) -> Reply:
    """Return the time: seconds, and microseconds in steps of whole milliseconds."""
    seconds, rest_ms = divmod(run.now_ms, 1000)
    return [b"%d" % seconds, b"%d" % (rest_ms * 1000)]


@command("role", 1, "server", "noscript loading stale fast")
def role(run: Run, argv: Args) -> Reply:
    """Return whether this node accepts writes, and otherwise which node does."""
    server = run.shared.server
    if server.role() == b"master":
        return [b"master", 0, []]
    leader = server.leader()
    if leader is None:
        return [b"slave", b"", 0, b"connect", -1]
    return [b"slave", leader[0], leader[1], b"connected", 0]


# ----------------------------------------------------------------------------------------- INFO

Fields = dict[bytes, bytes | int]
_UNITS: Final = b"BKMGTP"
_DAY_S: Final = 86_400


def human(size: int) -> bytes:
    """Format a number of bytes: 1.50M."""
    if size < 1024:
        return b"%dB" % size
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return b"%.2f%c" % (amount, _UNITS[unit])


def _server(run: Run) -> Fields:
    server = run.shared.server
    up_s = max(run.now_ms - server.started_ms, 0) // 1000
    return {
        b"redis_version": REDIS_VERSION,
        b"redis_build_id": b"delaylog",
        b"redis_mode": b"standalone",
        b"os": b"",
        b"arch_bits": 64,
        b"process_id": server.process_id,
        b"run_id": server.run_id,
        b"tcp_port": server.address[1],
        b"server_time_usec": run.now_ms * 1000,
        b"uptime_in_seconds": up_s,
        b"uptime_in_days": up_s // _DAY_S,
        b"executable": b"",
    }


def _clients(run: Run) -> Fields:
    shared = run.shared
    return {
        b"connected_clients": len(shared.sessions),
        b"maxclients": value_of(shared.server, b"maxclients"),
        b"blocked_clients": shared.blocked_clients,
    }


def _memory(run: Run) -> Fields:
    server = run.shared.server
    limit = int(value_of(server, b"maxmemory"))
    return {
        b"used_memory": 0,
        b"used_memory_rss": 0,
        b"used_memory_peak": 0,
        b"total_system_memory": 0,
        b"maxmemory": limit,
        b"maxmemory_human": human(limit),
        b"maxmemory_policy": value_of(server, b"maxmemory-policy"),
        b"lazyfree_pending_objects": len(run.keyspace.garbage),
    }


def _persistence(run: Run) -> Fields:
    server = run.shared.server
    return {
        b"loading": 0,
        b"rdb_bgsave_in_progress": 0,
        b"aof_enabled": int(value_of(server, b"appendonly") == b"yes"),
    }


def _stats(run: Run) -> Fields:
    shared, server, pubsub = run.shared, run.shared.server, run.shared.pubsub
    return {
        b"total_connections_received": server.connections,
        b"total_commands_processed": server.commands_run,
        b"instantaneous_ops_per_sec": server.commands_a_second(run.now_ms),
        b"rejected_connections": server.refused_connections,
        b"expired_keys": shared.keyspace.expired_keys,
        b"pubsub_channels": len(pubsub.channels),
        b"pubsub_patterns": len(pubsub.patterns),
        b"total_error_replies": server.errors_answered,
    }


def _replication(run: Run) -> Fields:
    server = run.shared.server
    role = server.role()
    members: Fields = {b"role": role}
    if role == b"slave":
        leader = server.leader()
        members |= {
            b"master_host": leader[0] if leader else b"",
            b"master_port": leader[1] if leader else 0,
            b"master_link_status": b"up" if leader else b"down",
            b"master_last_io_seconds_ago": 0 if leader else -1,
            b"master_sync_in_progress": 0,
            b"slave_read_only": 1,
        }
    return members | {
        b"connected_slaves": 0,
        b"master_replid": server.run_id,
    }


def _cpu(run: Run) -> Fields:
    return {b"used_cpu_sys": b"0.000000", b"used_cpu_user": b"0.000000"}


def _cluster(run: Run) -> Fields:
    return {b"cluster_enabled": 0}


def _keyspace(run: Run) -> Fields:
    return {
        b"db%d" % database.number: b"keys=%d,expires=%d,avg_ttl=0"
        % (len(database.values), len(database.expires))
        for database in run.keyspace.databases
        if database.values
    }


def _delaylog(run: Run) -> Fields:
    return {**run.shared.server.delaylog_facts()}


_SECTIONS: Final[dict[bytes, Callable[[Run], Fields]]] = {
    b"Server": _server,
    b"Clients": _clients,
    b"Memory": _memory,
    b"Persistence": _persistence,
    b"Stats": _stats,
    b"Replication": _replication,
    b"CPU": _cpu,
    b"Cluster": _cluster,
    b"Keyspace": _keyspace,
    b"Delaylog": _delaylog,
}
_ALL: Final = {name.lower() for name in _SECTIONS}


@command("info", -1, "server", "loading stale")
def info(run: Run, argv: Args) -> Reply:
    """Describe this server: [section ...], default, all or everything."""
    wanted: set[bytes] = set()
    for word in [word.lower() for word in argv[1:]] or [b"default"]:
        wanted |= _ALL if word in (b"all", b"everything", b"default") else {word}
    facts = run.shared.server.facts()
    texts = []
    for name, section in _SECTIONS.items():
        if name.lower() not in wanted:
            continue
        members = section(run)
        members |= {key: facts[key] for key in members.keys() & facts.keys()}
        if name == b"Memory":
            for key in [key for key in members if key in _WITH_HUMAN]:
                members[key + b"_human"] = human(int(members[key]))
        lines = [b"# %b" % name]
        lines += [
            b"%b:%b" % (key, value if isinstance(value, bytes) else b"%d" % value)
            for key, value in members.items()
        ]
        texts.append(b"".join(line + b"\r\n" for line in lines))
    return Verbatim(b"\r\n".join(texts))


_WITH_HUMAN: Final = {
    b"used_memory",
    b"used_memory_rss",
    b"used_memory_peak",
    b"total_system_memory",
}


# ------------------------------------------------------------------------------------- SENTINEL

_SENTINEL_FLAGS: Final = "admin only_sentinel loading stale"
_NAME: Final = b"delaylog"


def _leader(run: Run) -> tuple[bytes, int] | None:
    """Return the endpoint of the leader, if known."""
    server = run.shared.server
    if server.role() != b"master":
        return server.leader()
    if (known := server.leader()) is not None:
        return known
    # The address that this client has connected to: it works for this client.
    host, _, port = run.session.local_address.rpartition(b":")
    if host and port.isdigit() and int(port):
        return host, int(port)
    return server.address


@command("sentinel|get-master-addr-by-name", 3, "server", _SENTINEL_FLAGS)
def get_master_addr_by_name(run: Run, argv: Args) -> Reply:
    """Return host and port of the leader, for any name."""
    leader = _leader(run)
    return NO_ARRAY if leader is None else [leader[0], b"%d" % leader[1]]


def _describe(run: Run, name: bytes) -> Reply:
    host, port = _leader(run) or (b"", 0)
    server = run.shared.server
    members: dict[bytes, bytes] = {
        b"name": name,
        b"ip": host,
        b"port": b"%d" % port,
        b"runid": server.run_id,
        b"flags": b"master" if port else b"master,o_down",
        b"link-pending-commands": b"0",
        b"link-refcount": b"1",
        b"last-ping-sent": b"0",
        b"last-ok-ping-reply": b"0",
        b"last-ping-reply": b"0",
        b"down-after-milliseconds": b"1000",
        b"info-refresh": b"0",
        b"role-reported": b"master",
        b"role-reported-time": b"0",
        b"config-epoch": b"0",
        b"num-slaves": b"0",
        b"num-other-sentinels": b"0",
        b"quorum": b"1",
        b"failover-timeout": b"1000",
        b"parallel-syncs": b"1",
    }
    return Map([text for pair in members.items() for text in pair])


@command("sentinel|master", 3, "server", _SENTINEL_FLAGS)
def master(run: Run, argv: Args) -> Reply:
    """Describe the leader as sentinels describe masters."""
    return _describe(run, argv[2])


@command("sentinel|masters", 2, "server", _SENTINEL_FLAGS)
def masters(run: Run, argv: Args) -> Reply:
    """List the leader as the only master."""
    return [_describe(run, _NAME)]


def _none(run: Run, argv: Args) -> Reply:
    """Return an empty list."""
    return []


for _others in ("replicas", "slaves", "sentinels"):
    command(f"sentinel|{_others}", 3, "server", _SENTINEL_FLAGS)(_none)
