"""Makes the pusher of a process that serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from delaylog.broker.host.system import descriptors
from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.metrics import PushMetrics
from delaylog.broker.push.pusher import Pusher
from delaylog.broker.rules.push.addresses import AddressRules

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode


def start_pusher(
    node: ServingNode,
    rules: AddressRules,
    listening: Mapping[str, str],
    on_fatal: Callable[[BaseException], None],
    registry: CollectorRegistry,
) -> Pusher:
    """Push from now on while the node leads. `listening`: the process's own listeners, each
    HOST:PORT; no push reaches them.
    """
    own = frozenset(int(at.rpartition(":")[2]) for at in listening.values())
    connections_max = descriptors.served().pushes
    idle_max = connections_max // 3
    attempts = Attempts(rules, now_ms=node.clock.now_ms, own_ports=own, idle_max=idle_max)
    pusher = Pusher(node, attempts, on_fatal, attempts_max=connections_max - idle_max)
    node.push_rules, node.push_health = rules, pusher.health
    registry.register(PushMetrics(pusher, node.clock.now_ms))
    pusher.start()
    return pusher
