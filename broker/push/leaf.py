"""What push adds: a consumer inside the broker, which sends messages to the targets of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.process.leaves import Leaf
from delaylog.extras import PUSH

if TYPE_CHECKING:
    from delaylog.broker.process.served import Served, Stop


def _start(served: Served, listening: Mapping[str, str]) -> Stop:
    from delaylog.broker.push.starting import start_pusher

    config, registry = served.config, served.metrics.registry
    return start_pusher(served.node, config.push, listening, served.on_fatal, registry).stop


LEAF: Final = Leaf(PUSH, start=_start)
