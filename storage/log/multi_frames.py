"""MULTI frames: several decisions in one frame of the log, applied together or not at all.

The payload is `pack({"frames": [[kind, size], …]}, payloads)`: what the frames would have as their
own payloads, one after another. They share the position, the time and the tick of the MULTI frame.
A MULTI frame contains no MULTI, no PUBLISH and no KEYSPACE frame: those need work of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.payloads import pack, unpack
from delaylog.storage.messages.batch import Block


def encode_multi(parts: Sequence[tuple[FrameKind, Sequence[Block]]]) -> list[Block]:
    """The payload of a MULTI frame of these kinds and payloads."""
    sizes = [[int(kind), sum(map(len, payload))] for kind, payload in parts]
    return [*pack({"frames": sizes}), *(block for _, payload in parts for block in payload)]


def frames_of(frame: Frame) -> Iterator[Frame]:
    """The frames in a MULTI frame. Each has the header of the whole, but for its kind."""
    head, tail = unpack(frame.payload)
    start = 0
    for kind, size in head["frames"]:
        yield Frame(frame.header._replace(kind=kind), tail[start : start + size])
        start += size
