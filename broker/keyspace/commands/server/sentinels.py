"""SENTINEL: returns the leader's address to clients that look for it through Redis Sentinel.

A client may use any node as its sentinel, and any name for the master. The node returns the address
at which the leader accepts Redis clients. There are no real sentinels, so lists of sentinels are
empty. Replicas are not listed either, because followers may answer reads with stale data.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import NO_ARRAY, Map, Reply
from delaylog.broker.keyspace.running.run import Run

_FLAGS: Final = "admin only_sentinel loading stale"
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


@command("sentinel|get-master-addr-by-name", 3, "server", _FLAGS)
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


@command("sentinel|master", 3, "server", _FLAGS)
def master(run: Run, argv: Args) -> Reply:
    """Describe the leader as sentinels describe masters."""
    return _describe(run, argv[2])


@command("sentinel|masters", 2, "server", _FLAGS)
def masters(run: Run, argv: Args) -> Reply:
    """List the leader as the only master."""
    return [_describe(run, _NAME)]


def _none(run: Run, argv: Args) -> Reply:
    """Return an empty list."""
    return []


for _others in ("replicas", "slaves", "sentinels"):
    command(f"sentinel|{_others}", 3, "server", _FLAGS)(_none)
