"""INFO: what tools read of a server, in the sections and by the names of Redis 7.0.

Only members that are true or that tools look for are there; what the host knows better replaces
them (`ServerState.facts`). A section of its own tells of delaylog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.commands.configuration import value_of
from delaylog.broker.keyspace.commands.connection import REDIS_VERSION
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply, Verbatim
from delaylog.broker.keyspace.run import Run

Members = dict[bytes, bytes | int]
_UNITS: Final = b"BKMGTP"
_DAY_S: Final = 86_400


def human(size: int) -> bytes:
    """A number of bytes as people read it: 1.50M."""
    if size < 1024:
        return b"%dB" % size
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return b"%.2f%c" % (amount, _UNITS[unit])


def _server(run: Run) -> Members:
    server = run.executor.server
    up_s = max(run.now_ms - server.started_ms, 0) // 1000
    return {
        b"redis_version": REDIS_VERSION,
        b"redis_git_sha1": b"00000000",
        b"redis_git_dirty": 0,
        b"redis_build_id": b"delaylog",
        b"redis_mode": b"standalone",
        b"os": b"",
        b"arch_bits": 64,
        b"process_id": server.process_id,
        b"process_supervised": b"no",
        b"run_id": server.run_id,
        b"tcp_port": server.address[1],
        b"server_time_usec": run.now_ms * 1000,
        b"uptime_in_seconds": up_s,
        b"uptime_in_days": up_s // _DAY_S,
        b"executable": b"",
        b"config_file": b"",
        b"io_threads_active": 0,
    }


def _clients(run: Run) -> Members:
    executor = run.executor
    return {
        b"connected_clients": len(executor.sessions),
        b"cluster_connections": 0,
        b"maxclients": value_of(executor.server, b"maxclients"),
        b"client_recent_max_input_buffer": 0,
        b"client_recent_max_output_buffer": 0,
        b"blocked_clients": len(executor.waits.sessions),
        b"tracking_clients": 0,
        b"clients_in_timeout_table": sum(
            session.blocked is not None and session.blocked.deadline_ms is not None
            for session in executor.waits.sessions.values()
        ),
    }


def _memory(run: Run) -> Members:
    server = run.executor.server
    limit = int(value_of(server, b"maxmemory"))
    return {
        b"used_memory": 0,
        b"used_memory_rss": 0,
        b"used_memory_peak": 0,
        b"total_system_memory": 0,
        b"maxmemory": limit,
        b"maxmemory_human": human(limit),
        b"maxmemory_policy": value_of(server, b"maxmemory-policy"),
        b"mem_fragmentation_ratio": b"1.00",
        b"mem_allocator": b"libc",
        b"active_defrag_running": 0,
        b"lazyfree_pending_objects": len(run.keyspace.garbage),
    }


def _persistence(run: Run) -> Members:
    server = run.executor.server
    return {
        b"loading": 0,
        b"async_loading": 0,
        b"rdb_changes_since_last_save": 0,
        b"rdb_bgsave_in_progress": 0,
        b"rdb_last_save_time": server.started_ms // 1000,
        b"rdb_last_bgsave_status": b"ok",
        b"rdb_last_bgsave_time_sec": -1,
        b"rdb_current_bgsave_time_sec": -1,
        b"aof_enabled": int(value_of(server, b"appendonly") == b"yes"),
        b"aof_rewrite_in_progress": 0,
        b"aof_rewrite_scheduled": 0,
        b"aof_last_rewrite_time_sec": -1,
        b"aof_current_rewrite_time_sec": -1,
        b"aof_last_bgrewrite_status": b"ok",
        b"aof_last_write_status": b"ok",
    }


def _stats(run: Run) -> Members:
    executor, server, pubsub = run.executor, run.executor.server, run.executor.pubsub
    since = server.since_reset
    return {
        b"total_connections_received": since("connections", server.connections),
        b"total_commands_processed": since("commands_run", server.commands_run),
        b"instantaneous_ops_per_sec": server.commands_a_second(run.now_ms),
        b"rejected_connections": since("refused_connections", server.refused_connections),
        b"expired_keys": since("expired_keys", executor.keyspace.expired_keys),
        b"evicted_keys": 0,
        b"keyspace_hits": 0,
        b"keyspace_misses": 0,
        b"pubsub_channels": len(pubsub.channels),
        b"pubsub_patterns": len(pubsub.patterns),
        b"latest_fork_usec": 0,
        b"total_forks": 0,
        b"total_error_replies": since("errors_answered", server.errors_answered),
    }


def _replication(run: Run) -> Members:
    server = run.executor.server
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
        b"master_failover_state": b"no-failover",
        b"master_replid": server.run_id,
        b"master_replid2": b"0" * 40,
        b"master_repl_offset": 0,
        b"second_repl_offset": -1,
        b"repl_backlog_active": 0,
        b"repl_backlog_first_byte_offset": 0,
        b"repl_backlog_histlen": 0,
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
    return {**run.executor.server.delaylog_facts()}


def _nothing(run: Run) -> Members:
    return {}


_SECTIONS: Final[dict[bytes, Callable[[Run], Members]]] = {
    b"Server": _server,
    b"Clients": _clients,
    b"Memory": _memory,
    b"Persistence": _persistence,
    b"Stats": _stats,
    b"Replication": _replication,
    b"CPU": _cpu,
    b"Modules": _nothing,
    b"Commandstats": _nothing,
    b"Errorstats": _nothing,
    b"Latencystats": _nothing,
    b"Cluster": _cluster,
    b"Keyspace": _keyspace,
    b"Delaylog": _delaylog,
}
_SELDOM: Final = {b"commandstats", b"latencystats"}
"""Shown only to those who ask for everything."""
_ALL: Final = {name.lower() for name in _SECTIONS}


@command("info", -1, "server", "loading stale @dangerous")
def info(run: Run, argv: Args) -> Reply:
    """What there is to know of this server: [section ...], default, all or everything."""
    wanted: set[bytes] = set()
    for word in [word.lower() for word in argv[1:]] or [b"default"]:
        if word in (b"all", b"everything"):
            wanted |= _ALL
        elif word == b"default":
            wanted |= _ALL - _SELDOM
        else:
            wanted.add(word)
    facts = run.executor.server.facts()
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
