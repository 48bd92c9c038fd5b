"""Puts the keyspace's effects into the log."""

from __future__ import annotations

from typing import Final

import msgpack

from delaylog.broker.engine.keyspace.keyspace_pieces import cut
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import PAYLOAD_BYTES_MAX

_TURN_BYTES: Final = 64 << 10
"""Room to begin with for the effects of a turn: msgpack's own, of 1 MiB, the system has to clear
each time, which takes longer than packing.
"""


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects, which come about together; returns the end of what the state has
    seen.

    Raises NotLeadingError: they are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        packed: bytes = msgpack.packb(keyspace.effects, buf_size=_TURN_BYTES)
        for payload in cut(packed, PAYLOAD_BYTES_MAX):
            # None but the first can be refused: nothing happens in between.
            state.append(FrameKind.KEYSPACE, payload, now_ms)
            state.keyspace_base.note(sum(map(len, payload)))
        keyspace.take_effects()
    return state.position
