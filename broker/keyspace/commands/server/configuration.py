"""CONFIG GET: the settings of Redis that have a meaning here. Clients cannot change them."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.server_state import ServerState
from delaylog.broker.keyspace.values.globs import matcher

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
