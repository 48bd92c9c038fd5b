"""Makes the pusher of a process that serves, and the metrics of its pushes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.metrics.families import by_label, families
from delaylog.broker.host.system import descriptors
from delaylog.broker.push.attempts import Attempts
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


STATES = ("closed", "open", "half-open", "throttled", "disabled")


class PushMetrics(Collector):
    """Targets by state, attempts in flight, and attempts that ended."""

    def __init__(self, pusher: Pusher, now_ms: Callable[[], int]) -> None:
        self._pusher, self._now_ms = pusher, now_ms

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        now_ms, share = self._now_ms(), self._pusher.share
        states = Counter(pump.breaker.health.state(now_ms) for pump in self._pusher.pumps.values())
        yield by_label("delaylog_push_targets", {state: states[state] for state in STATES})
        yield from families({"delaylog_push_in_flight": share.in_flight})
        ended = {verdict.name.lower(): count for verdict, count in share.ended.items()}
        yield by_label("delaylog_push_attempts_total", ended)
