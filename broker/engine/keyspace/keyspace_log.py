"""Puts the keyspace's effects into the log."""

from __future__ import annotations

from typing import Final

import msgpack

from delaylog.broker.engine.keyspace.keyspace_pieces import cut
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX

_TURN_BYTES: Final = 64 << 10
"""Initial buffer for the effects of a turn. The default of msgpack is 1 MiB, which the system has
to clear each time; that takes longer than packing.
"""


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects, which are applied together; returns the end of the log.

    Raises NotLeadingError: the effects are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        packed: bytes = msgpack.packb(keyspace.effects, buf_size=_TURN_BYTES)
        for payload in cut(packed, PAYLOAD_BYTES_MAX):
            # Only the first append can be refused, since nothing happens in between.
            state.append(FrameKind.KEYSPACE, payload, now_ms)
            state.keyspace_base.note(sum(map(len, payload)))
        keyspace.take_effects()
    return state.position
