"""Creates the endpoint for Redis clients from its configuration."""

from __future__ import annotations

import logging
from functools import partial

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.host.settings import cannot_listen
from delaylog.broker.host.tls.contexts import ServerTls
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.keyspace.running.shared_state import ServerState
from delaylog.broker.keyspace.scripts.runtime import has_lua
from delaylog.broker.process.parts import Endpoint, Served
from delaylog.broker.resp.access import CommandAudit
from delaylog.broker.resp.connection import Connection
from delaylog.broker.resp.face import RespFace
from delaylog.broker.resp.facts import RespMetrics
from delaylog.broker.resp.settings import RespConfig
from delaylog.broker.rules.addresses import host_port

log = logging.getLogger("delaylog.resp")


def make_face(node: ServingNode, config: RespConfig, audit: AuditLog) -> RespFace:
    """Create the endpoint, which does not listen yet."""
    if config.scripts and not has_lua():
        log.warning(
            "scripts of Redis clients are refused, since Lua is not installed; RQ, BullMQ and "
            "others need it: run pip install 'delaylog[server,redis]' and start again"
        )
    face = RespFace(
        node,
        ServerState(started_ms=node.clock.now_ms()),
        after_write=config.after_write,
        maxmemory=config.maxmemory,
        scripts=config.scripts,
    )
    CommandAudit(audit, face.executor)
    return face


def make_endpoint(served: Served, config: RespConfig) -> Endpoint:
    """Create the endpoint of a process, which does not listen yet."""
    face, metrics, http = make_face(served.node, config, served.audit), served.metrics, served.face
    metrics.registry.register(RespMetrics(face.executor))
    metrics.connections["resp"] = lambda: face.open_connections
    face.other_connections = lambda: http.connections
    return Endpoint(
        "resp",
        partial(listen, face, config, served.tls),
        face.close_listener,
        face.stop,
        lambda: face.open_connections,
    )


async def listen(face: RespFace, config: RespConfig, tls: ServerTls | None) -> str:
    """Listen, with `tls` if it is given; returns HOST:PORT. Raises ConfigError."""
    try:
        port = await face.start(lambda: Connection(face), config.host, config.port, tls)
    except OSError as error:
        raise cannot_listen(f"{host_port((config.host, config.port))} (--resp)", error) from None
    return host_port((config.host, port))
