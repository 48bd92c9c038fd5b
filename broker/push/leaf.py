"""What push adds: a consumer inside the broker, which sends messages to the targets of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.host.rows import Option, counter, gauge
from delaylog.broker.process.leaves import Leaf
from delaylog.extras import PUSH

if TYPE_CHECKING:
    from delaylog.broker.process.parts import Served, Stop
    from delaylog.broker.rules.push_addresses import AddressRules


def _configure(values: Mapping[str, str], _no_auth: bool) -> AddressRules:
    from delaylog.broker.push.settings import configured

    return configured(values)


def _start(served: Served, listening: Mapping[str, str]) -> Stop:
    from delaylog.broker.push.pusher import start_pusher

    rules, registry = served.config.leaves[PUSH], served.metrics.registry
    return start_pusher(served.node, rules, listening, served.on_fatal, registry).stop


OPTIONS: Final = (
    Option(
        "push-allow", "", "networks inside that pushes may reach (10.1.0.0/16), comma-separated"
    ),
    Option("push-ports", "80,443", "ports that pushes may connect to, comma-separated"),
)
METRICS: Final = (
    gauge("push_targets", "Push targets of this leader.", "state"),
    gauge("push_in_flight", "Attempts at push targets in flight."),
    counter("push_attempts", "Attempts at push targets that ended.", "result"),
)
LEAF: Final = Leaf(PUSH, options=OPTIONS, configure=_configure, metrics=METRICS, start=_start)
