"""Puts the keyspace's effects into the log."""

from __future__ import annotations

import msgpack

from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects as one frame; returns the end of what the state has seen.

    Raises NotLeadingError: they are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        state.append(FrameKind.KEYSPACE, [msgpack.packb(keyspace.effects)], now_ms)
        keyspace.take_effects()
    return state.position
