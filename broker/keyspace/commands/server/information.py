"""INFO: facts about the server for monitoring tools, in the sections and names of Redis 7.0.

It contains the fields that are true here and those that tools require. Fields from the host
(`ServerState.facts`) replace the defaults. The section Delaylog has the broker's own facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.server.configuration import value_of
from delaylog.broker.keyspace.commands.server.connection import REDIS_VERSION
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply, Verbatim
from delaylog.broker.keyspace.running.run import Run

Members = dict[bytes, bytes | int]
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


def _server(run: Run) -> Members:
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


def _clients(run: Run) -> Members:
    shared = run.shared
    return {
        b"connected_clients": len(shared.sessions),
        b"maxclients": value_of(shared.server, b"maxclients"),
        b"blocked_clients": len(shared.waits.sessions),
    }


def _memory(run: Run) -> Members:
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


def _persistence(run: Run) -> Members:
    server = run.shared.server
    return {
        b"loading": 0,
        b"rdb_bgsave_in_progress": 0,
        b"aof_enabled": int(value_of(server, b"appendonly") == b"yes"),
    }


def _stats(run: Run) -> Members:
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


def _replication(run: Run) -> Members:
    server = run.shared.server
    role = server.role()
    members: Members = {b"role": role}
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


def _cpu(run: Run) -> Members:
    return {b"used_cpu_sys": b"0.000000", b"used_cpu_user": b"0.000000"}


def _cluster(run: Run) -> Members:
    return {b"cluster_enabled": 0}


def _keyspace(run: Run) -> Members:
    return {
        b"db%d" % database.number: b"keys=%d,expires=%d,avg_ttl=0"
        % (len(database.values), len(database.expires))
        for database in run.keyspace.databases
        if database.values
    }


def _delaylog(run: Run) -> Members:
    return {**run.shared.server.delaylog_facts()}


_SECTIONS: Final[dict[bytes, Callable[[Run], Members]]] = {
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
