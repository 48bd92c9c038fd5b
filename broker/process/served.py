"""What leaves get from a process that serves, and what they give it to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.host.audit.audit_log import AuditLog
from delaylog.broker.host.config import Config
from delaylog.broker.host.metrics.metrics import Metrics
from delaylog.broker.host.tls.server_tls import ServerTls
from delaylog.broker.web.app import HttpFace

Stop: TypeAlias = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Served:
    """The parts of a process, before they start."""

    node: ServingNode
    config: Config
    metrics: Metrics
    audit: AuditLog
    face: HttpFace
    tls: ServerTls | None
    """Certificates for listeners; None: without TLS."""
    on_fatal: Callable[[BaseException], None]
    """Ends the process."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener beside that of HTTP."""

    name: str
    """In the line that says that the process is ready."""
    listen: Callable[[], Awaitable[str]]
    """Start to listen; returns HOST:PORT. Raises ConfigError."""
    close_listener: Stop
    """Take no new connections."""
    stop: Stop
    """Close the connections, after all listeners are closed."""
    connections: Callable[[], int]
    """Count of its clients, which share the file descriptors with those of HTTP."""
