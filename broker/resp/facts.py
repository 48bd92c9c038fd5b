"""Facts for INFO and CONFIG that only the host knows: memory, addresses, role, the log."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

from delaylog import __version__
from delaylog.broker.host.system.process_memory import resident_bytes
from delaylog.broker.keyspace.server_state import Facts, ServerState
from delaylog.broker.rules.addresses import host_port

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


def address_text(address: object) -> bytes:
    """Format the address of a socket as HOST:PORT."""
    if not isinstance(address, tuple):
        return b""
    return host_port(address[:2]).encode()


def host_in(address: bytes) -> str:
    """The host in the text of an address, without the brackets of IPv6."""
    return address.rpartition(b":")[0].decode().strip("[]")


def tell(server: ServerState, node: Node, *, after_write: bool) -> None:
    """Connect the server's state to its host."""
    server.run_id = node.machine.random_bytes(20).hex().encode()
    server.process_id = os.getpid()
    server.role = lambda: b"master" if node.role.leading else b"slave"
    server.leader = lambda: _leader(node)
    server.facts = _facts
    server.delaylog_facts = lambda: _delaylog(node, after_write=after_write)
    server.given |= {
        b"appendonly": b"yes",
        b"appendfsync": b"everysec" if after_write else b"always",
    }


def _leader(node: Node) -> tuple[bytes, int] | None:
    found = node.role.leader_resp()
    return None if found is None else (found[0].encode(), found[1])


def listens(server: ServerState, host: str, port: int) -> None:
    """Set the address that the endpoint listens on."""
    server.address = (host.encode(), port)
    server.given |= {b"bind": host.encode(), b"port": b"%d" % port}


def _facts() -> Facts:
    now, peak = resident_bytes()
    spent = os.times()
    system = platform.uname()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        b"os": f"{system.system} {system.release} {system.machine}".encode(),
        b"executable": os.path.realpath(sys.argv[0]).encode(),
        b"used_memory": b"%d" % now,
        b"used_memory_rss": b"%d" % now,
        b"used_memory_peak": b"%d" % peak,
        b"total_system_memory": b"%d" % memory,
        b"used_cpu_sys": b"%.6f" % spent.system,
        b"used_cpu_user": b"%.6f" % spent.user,
    }


def _delaylog(node: Node, *, after_write: bool) -> Facts:
    state = node.engine.state
    return {
        b"delaylog_version": __version__.encode(),
        b"answers_after": b"write" if after_write else b"fsync",
        b"log_end_position": b"%d" % state.log.end_position,
        b"log_durable_position": b"%d" % state.log.durable_position,
        b"log_applied_position": b"%d" % state.position,
        b"group_commits": b"%d" % node.log_commits.commits,
        b"topics": b"%d" % len(state.by_number),
        b"leases": b"%d" % len(state.leases),
        b"epoch": b"%d" % state.epoch_counter,
        b"leading": b"%d" % node.role.leading,
    }
