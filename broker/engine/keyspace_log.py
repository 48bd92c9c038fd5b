"""Puts the keyspace's effects into the log."""

from __future__ import annotations

from collections.abc import Iterator

import msgpack

from delaylog.broker.engine.state import EngineState
from delaylog.storage.frames import PAYLOAD_BYTES_MAX
from delaylog.storage.layout import FrameKind


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects as one frame; returns the end of what the state has seen.

    Raises NotLeadingError: they are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        payload: bytes = msgpack.packb(keyspace.effects)
        payloads = [payload] if len(payload) <= PAYLOAD_BYTES_MAX else _split(keyspace.effects)
        for payload in payloads:
            # None but the first can be refused: nothing happens in between.
            state.append(FrameKind.KEYSPACE, [payload], now_ms)
            state.keyspace_base.note(len(payload))
        keyspace.take_effects()
    return state.position


def _split(effects: list[list[bytes]]) -> Iterator[bytes]:
    """Effects that are too many for one frame, in several. Each begins in database 0.

    A crash in between leaves the first of them only; a turn that changes so much is rare enough.
    """
    part: list[list[bytes]] = []
    size, select = 0, None
    for effect in effects:
        cost = sum(map(len, effect)) + 5 * len(effect) + 5
        if part and size + cost > PAYLOAD_BYTES_MAX // 2:
            yield msgpack.packb(part)
            part, size = ([] if select is None else [select]), 0
        if effect[0] == b"SELECT":
            select = effect
        part.append(effect)
        size += cost
    yield msgpack.packb(part)
