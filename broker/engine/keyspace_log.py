"""Puts the keyspace's effects into the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgpack

from delaylog.broker.engine.state import EngineState
from delaylog.storage.frames import PAYLOAD_BYTES_MAX
from delaylog.storage.layout import FrameKind

_TURN_BYTES: Final = 64 << 10
"""Room to begin with for the effects of a turn: msgpack's own, of 1 MiB, the system has to clear
each time, which takes longer than packing.
"""
_ONE_BY_ONE: Final = (b"RPUSH", b"SREM")
"""Effects of a key and elements, which may as well come one after the other."""


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects as one frame; returns the end of what the state has seen.

    Raises NotLeadingError: they are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        payload: bytes = msgpack.packb(keyspace.effects, buf_size=_TURN_BYTES)
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
    for effect in chain.from_iterable(map(_pieces, effects)):
        cost = _cost(effect)
        if part and size + cost > PAYLOAD_BYTES_MAX // 2:
            yield msgpack.packb(part)
            part, size = ([] if select is None else [select]), 0
        if effect[0] == b"SELECT":
            select = effect
        part.append(effect)
        size += cost
    yield msgpack.packb(part)


def _cost(effect: list[bytes]) -> int:
    return sum(map(len, effect)) + 5 * len(effect) + 5


def _pieces(effect: list[bytes]) -> Iterator[list[bytes]]:
    """An effect that is too large for a frame, in several that bring about the same.

    Clients send no command that large; what is made of a small one (SPOP, SORT) may be.
    """
    if _cost(effect) <= PAYLOAD_BYTES_MAX // 2 or effect[0] not in _ONE_BY_ONE:
        yield effect
        return
    head = effect[:2]
    piece, size = list(head), 0
    for item in effect[2:]:
        if size + len(item) + 5 > PAYLOAD_BYTES_MAX // 4 and len(piece) > 2:
            yield piece
            piece, size = list(head), 0
        piece.append(item)
        size += len(item) + 5
    yield piece
