"""Acts on the hold of a broker, which changes by calls, by the log and by the order of a folder.

Calls that wait for messages end when a hold begins, and what has become due is delivered when it
ends. While it lasts, the log says so each minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine.errors import HeldError
from delaylog.broker.engine.hold import REFUSAL, Hold
from delaylog.broker.engine.state import EngineState

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

EVERY_SECONDS: Final = 60.0

log = logging.getLogger("delaylog.node")


class HoldWatch:
    """The hold of one node's engines. All methods belong to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: tuple[EngineState, Hold | None] = (node.engine.state, None)
        self._told_s = 0.0
        self.on_held: Callable[[], None] = lambda: None
        """Called when a hold begins, to end calls that wait for data."""

    def look(self, now_ms: int) -> None:
        """Carry out the order of the folder, act on a change, and remind the operator."""
        node, engine = self._node, self._node.engine
        position = engine.state.position
        engine.look_after_order(now_ms)
        if engine.state.position != position:
            node.appended()
        hold = engine.state.holding.now
        if self._seen != (engine.state, hold):
            was_held = self._seen[1] is not None
            self._seen = engine.state, hold
            if hold is not None:
                node.waiters.refuse(HeldError(REFUSAL, since_ms=hold.since_ms))
                self.on_held()
                self._tell(hold)
            elif was_held:
                log.info("the broker is released: it delivers, pushes and fires again")
            node.kick_dispatch()
        elif hold is not None and node.machine.steady_s() - self._told_s >= EVERY_SECONDS:
            self._tell(hold)

    def _tell(self, hold: Hold) -> None:
        self._told_s = self._node.machine.steady_s()
        log.warning(REFUSAL, extra={"since_ms": hold.since_ms, "note": hold.note})
