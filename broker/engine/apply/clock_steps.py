"""Steps of the clock: what an engine does when its time jumps ahead or is set back.

Ahead: due messages stream out by themselves; only leases must not end early, nor producers be
forgotten, nor what is in use pass for idle, so their times move along. Back (an operator confirmed
it): messages keep their absolute due times, and nothing may be handed out before them by the new
time. What the wheel and the ready queues hold is hints, so they are made anew, as at a start; the
hour floor goes back, or a new message would be stored in an hour that is opened only when the old
time is reached again. A new epoch begins, so that rows of an hour that had been deleted and comes
to be again never pass for the old ones.
"""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.apply.applying import apply_clock
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.wheel import TimingWheel


def jump_ahead(state: EngineState, jump_ms: int, now_ms: int) -> None:
    """Time went ahead by `jump_ms` more than passed: leases keep what is left of them.

    Producers do too: a send whose answer was lost is repeated a moment later. So do transactions.
    """
    held = (state.leases, state.claims, state.producers, state.transactions)
    if any(len(one) for one in held):
        _append(state, jump_ms, state.hour_floor, now_ms)
    for topic in state.by_number.values():
        topic.used_ms += jump_ms if topic.used_ms else 0
        for group in topic.groups.values():
            group.used_ms += jump_ms if group.used_ms else 0


def set_back(state: EngineState, step_ms: int, now_ms: int) -> None:
    """Time goes on from `now_ms`, `step_ms` (negative) from where it was."""
    state.begin_own_epoch(now_ms)
    _append(state, step_ms, min(state.hour_floor, now_ms // HOUR_MS - 1), now_ms)
    for topic in state.by_number.values():
        topic.used_ms = min(topic.used_ms, now_ms)
        for group in topic.groups.values():
            group.used_ms = min(group.used_ms, now_ms)
    # A bucket counts anew, or gives something soon: its old time may be hours away.
    state.woken.update(state.paced)
    state.forget_ready()
    state.wheel = TimingWheel(now_ms)


def _append(state: EngineState, step_ms: int, floor: int, now_ms: int) -> None:
    members = {"step_ms": step_ms, "floor": floor}
    state.append(FrameKind.CLOCK, [msgpack.packb(members)], now_ms)
    apply_clock(state, members, now_ms)
