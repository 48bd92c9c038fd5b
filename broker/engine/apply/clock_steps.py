"""Steps of the clock: what an engine does when its time jumps ahead or is set back.

Ahead: due messages are released as usual. Leases must not expire early, producers must not be
forgotten, and topics in use must not count as idle, so their times move along.

Back (after an operator confirmed it): messages keep their absolute due times, and none may be
handed out before its due time by the new clock. The wheel and the ready queues contain only hints,
so they are built anew as at a start. The hour floor goes back too, or a new message would be stored
in an hour that is opened only when the old time is reached again. A new epoch begins, so that the
refs of rows in a removed hour that is created again differ from the old ones.
"""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.apply.applying import apply_clock
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.wheel import TimingWheel


def jump_ahead(state: EngineState, jump_ms: int, now_ms: int) -> None:
    """The clock jumped ahead by `jump_ms`: leases, claims and transactions keep their time left.

    Producers do too, since a send whose answer was lost is repeated a moment later.
    """
    shifted = (state.leases, state.claims, state.producers, state.transactions)
    if any(len(one) for one in shifted):
        _append(state, jump_ms, state.hour_floor, now_ms)
    for topic in state.by_number.values():
        topic.used_ms += jump_ms if topic.used_ms else 0
        for group in topic.groups.values():
            group.used_ms += jump_ms if group.used_ms else 0


def set_back(state: EngineState, step_ms: int, now_ms: int) -> None:
    """The clock was set back by `step_ms` (negative) to `now_ms`."""
    state.begin_own_epoch(now_ms)
    _append(state, step_ms, min(state.hour_floor, now_ms // HOUR_MS - 1), now_ms)
    for topic in state.by_number.values():
        topic.used_ms = min(topic.used_ms, now_ms)
        for group in topic.groups.values():
            group.used_ms = min(group.used_ms, now_ms)
    # Token buckets start over or refill soon, while their recorded times may be hours away.
    state.marks.newly_ready.update(state.marks.rate_limited)
    state.forget_ready()
    state.wheel = TimingWheel(now_ms)


def _append(state: EngineState, step_ms: int, floor: int, now_ms: int) -> None:
    members = {"step_ms": step_ms, "floor": floor}
    state.append(FrameKind.CLOCK, [msgpack.packb(members)], now_ms)
    apply_clock(state, members, now_ms)
