"""What the Redis endpoint adds: a listener for Redis clients, if the configuration names one, its
settings and its metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.host.rows import Option, counter, gauge
from delaylog.broker.process.leaves import Leaf
from delaylog.extras import REDIS

if TYPE_CHECKING:
    from delaylog.broker.process.parts import Endpoint, Served
    from delaylog.broker.resp.settings import RespConfig


def _configure(values: Mapping[str, str], no_auth: bool) -> RespConfig | None:
    from delaylog.broker.resp.settings import configured

    return configured(values, no_auth=no_auth)


def _endpoint(served: Served) -> Endpoint | None:
    config: RespConfig | None = served.config.leaves[REDIS]
    if config is None:
        # A broker without Redis clients starts faster without importing their commands.
        return None
    from delaylog.broker.resp.endpoint import make_endpoint

    return make_endpoint(served, config)


OPTIONS: Final = (
    Option("resp", "", "HOST:PORT of the listener for Redis clients; empty = no listener"),
    Option("resp-fsync", "always", "always, or everysec: answer Redis clients before the fsync"),
    Option("resp-maxmemory", "auto", "memory of the process beyond which Redis clients get OOM"),
    Option(
        "resp-scripts", "auto", "Lua of Redis clients: on, off or auto (on loopback or with auth)"
    ),
)
METRICS: Final = (
    gauge("resp_clients", "Redis clients connected."),
    gauge("resp_blocked_clients", "Redis clients in a blocking command."),
    gauge("resp_keys", "Keys in all databases."),
    gauge("resp_expiring_keys", "Keys that have an expiry."),
    counter("resp_commands", "Commands of Redis clients."),
    counter("resp_errors", "Errors returned to Redis clients."),
    counter("resp_connections", "Redis clients accepted."),
    counter("resp_connections_refused", "Redis clients refused because there were too many."),
    counter("resp_failed_logins", "Wrong tokens of Redis clients."),
    counter("resp_expired_keys", "Expired keys removed since the keyspace was loaded."),
)
LEAF: Final = Leaf(
    REDIS,
    folders=("keyspace",),
    options=OPTIONS,
    configure=_configure,
    listens="resp",
    metrics=METRICS,
    endpoint=_endpoint,
)
