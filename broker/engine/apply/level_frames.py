"""LEVEL frames raise the feature level of the log; it is never lowered.

`storage/log/levels.py` says what each level adds, and when it may be raised.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.levels import KNOWN_LEVEL, decode_level, encode_level, refuse_newer
from delaylog.storage.messages.batch import Block

ID_KEY_SIZE: Final = 16


def raise_level(state: EngineState, now_ms: int, level: int = KNOWN_LEVEL) -> bool:
    """Raise the level of the log; False if it is as high already. Raises NotLeadingError.

    A log in which no topic was ever created gets a key for its id hash. Any other log contains ids
    that were hashed without a key, and keeps that hash for ever.
    """
    if level <= state.level:
        return False
    fresh = state.next_topic == 1 and not state.id_key
    payload = encode_level(level, state.random.randbytes(ID_KEY_SIZE) if fresh else b"")
    state.append(FrameKind.LEVEL, [payload], now_ms)
    apply_level(state, payload)
    return True


def apply_level(state: EngineState, payload: Block) -> None:
    """Apply a LEVEL frame. Raises NewerFormatError."""
    level, id_key = decode_level(payload)
    refuse_newer(level, "the log")
    state.level = max(state.level, level)
    if id_key:
        state.use_id_key(id_key)
