"""The pushes of a node: a pump for each target while the node leads.

There is none while the node follows or is held. Several times a second the pumps are compared with
the targets in the engine's state; while nothing has changed this costs two comparisons. A pump
whose target was replaced ends: its attempts in flight go on and settle, and the new pump begins
beside them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.engine.push.targets import GroupKey, Health
from delaylog.broker.engine.state import EngineState
from delaylog.broker.host.system import descriptors
from delaylog.broker.host.watch.metrics_table import by_label, families
from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.pump import Place, Pump, Share
from delaylog.broker.rules.push_addresses import AddressRules

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode


LOOK_SECONDS: Final = 0.1
STOP_SECONDS: Final = 1.0
"""How long a shutdown waits for attempts in flight."""


class Pusher:
    """The pushes of one node. All methods belong to the loop's thread."""

    def __init__(
        self,
        node: ServingNode,
        attempts: Attempts,
        on_fatal: Callable[[BaseException], None],
        *,
        attempts_max: int,
    ) -> None:
        """`attempts_max`: attempts of all targets that may be in flight."""
        self._node, self._attempts, self._on_fatal = node, attempts, on_fatal
        self.share = Share(attempts_max)
        self.pumps: dict[GroupKey, Pump] = {}
        self._seen: tuple[EngineState, int] | None = None
        """The state and its count of changes that the pumps follow; None: there are no pumps."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Push from now on, whenever the node leads."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Begin no more attempts; wait a moment for those in flight, and give up the rest."""
        if self._task is not None:
            self._task.cancel()
        self._drop_all()
        self.share.close()
        if self.share.running:
            _, late = await asyncio.wait(set(self.share.running), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        # Attempts begin settles when they end.
        while self.share.running:
            await asyncio.gather(*self.share.running, return_exceptions=True)
        await self._attempts.close()

    def health(self, key: GroupKey) -> Health | None:
        """What pushes have learned of a target, stored or not; None if none are made here."""
        pump = self.pumps.get(key)
        return pump.breaker.health if pump is not None and pump.is_current else None

    async def _follow(self) -> None:
        while True:
            try:
                self.look()
            except Exception as error:
                self._on_fatal(error)
                return
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Begin and end pumps, so that each target has one while this node leads."""
        node = self._node
        state = node.engine.state
        held = state.holding.now is not None
        if held or node.suspended or not node.role.may_dispatch():
            self._drop_all()
            return
        seen = (state, state.targets.changes)
        if self._seen is not None and self._seen[0] is state and self._seen[1] == seen[1]:
            return
        if self._seen is None or self._seen[0] is not state:
            self._drop_all()
        self._seen = seen
        for key, pump in list(self.pumps.items()):
            if state.targets.targets.get(key) is not pump.target:
                self._drop(key)
        for key in state.targets.targets.keys() - self.pumps.keys():
            self._add(state, key)

    def _add(self, state: EngineState, key: GroupKey) -> None:
        topic, group = state.by_number[key[0]], state.group(*key)
        assert group is not None, "a target ends with its group"
        place = Place((topic.namespace, topic.name), group.name, key)
        target = state.targets.targets[key]
        pump = self.pumps[key] = Pump(self._node, place, target, self._attempts, self.share)
        pump.start(self._on_fatal)

    def _drop(self, key: GroupKey) -> None:
        self.pumps.pop(key).stop()

    def _drop_all(self) -> None:
        for key in list(self.pumps):
            self._drop(key)
        self._seen = None


# ---------------------------------------------------------------------------- start and metrics


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
