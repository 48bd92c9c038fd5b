"""The real `delaylog` command of a broker whose machine stops for 4 s between lease and answer.

It runs alone and plays a leader: messages are handed out for 50 ms after its clock was last looked
at. The first lease of a topic whose name has `stop-lease` is followed by the stop at once; with
`stop-later` the stop follows the first look at the gate after the lease. For half a second after
the stop another node leads. Nothing really stops: only the boot clock steps.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from delaylog.broker.calls.turn import receives
from delaylog.broker.cli.main import main
from delaylog.broker.engine.errors import NO_LONGER_LEADS, NotLeadingError
from delaylog.broker.host.machine import RealMachine
from delaylog.broker.host.node_role import Standalone

STOP_MS = 4_000
LOST_S = 0.5
GATE_MS = 50


class Stops:
    """The stops so far."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.lost_until_s = 0.0
        self.seen: set[str] = set()
        self.armed = False

    def stop(self) -> None:
        self.ahead_ms += STOP_MS
        self.lost_until_s = time.monotonic() + LOST_S

    @property
    def lost(self) -> bool:
        return time.monotonic() < self.lost_until_s


stops = Stops()
_boot_ms, _lease = RealMachine.boot_ms, receives.lease
_in_time = receives.ReceiveMerger.in_time


def boot_ms(self: RealMachine) -> int:
    return _boot_ms(self) + stops.ahead_ms


def lease(node: Any, key: Any, calls: Any) -> Any:
    found = _lease(node, key, calls)
    if found and key[1] not in stops.seen:
        stops.seen.add(key[1])
        if "stop-lease" in key[1]:
            stops.stop()
        stops.armed = "stop-later" in key[1]
    return found


def in_time(self: receives.ReceiveMerger) -> bool:
    found = _in_time(self)
    if stops.armed:
        stops.armed = False
        stops.stop()
    return found


async def until_may_deliver(self: Standalone, seconds: float) -> bool:
    if stops.lost:
        raise NotLeadingError(NO_LONGER_LEADS)
    return True


if __name__ == "__main__":
    machine = RealMachine()
    RealMachine.boot_ms = boot_ms  # type: ignore[method-assign]
    receives.lease = lease
    receives.ReceiveMerger.in_time = in_time  # type: ignore[method-assign]
    Standalone.delivers_until_ms = (  # type: ignore[method-assign]
        lambda self: 0 if stops.lost else machine.boot_ms() + GATE_MS
    )
    Standalone.until_may_deliver = until_may_deliver  # type: ignore[method-assign]
    Standalone.may_deliver = lambda self: not stops.lost  # type: ignore[method-assign]
    sys.exit(main())
