"""MULTI frames: the bytes of one, and the frames in it."""

from __future__ import annotations

from delaylog.storage.layout import FrameHeader, FrameKind
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.payloads import encode_multi, frames_of


def header(kind: FrameKind, size: int) -> FrameHeader:
    """A header at position 640."""
    return FrameHeader(0, 1, kind, 0, size, 0, 3 << 16, 640, 0, 1_000, 0, 0, 0)


def test_the_frames_in_it_have_its_place_and_time() -> None:
    """Kinds and payloads as they were encoded, in order; one has no payload."""
    parts = [
        (FrameKind.SEND, [b"ab", b"", b"cd"]),
        (FrameKind.SCHEDULE, []),
        (FrameKind.SCHEDULE, [b"e"]),
    ]
    payload = b"".join(encode_multi(parts))
    head = b"\x81\xa6frames\x93\x92\x02\x04\x92\x13\x00\x92\x13\x01"
    assert payload == len(head).to_bytes(4, "little") + head + b"abcde"
    frame = Frame(header(FrameKind.MULTI, len(payload)), payload)
    found = list(frames_of(frame))
    assert [(one.header.kind, bytes(one.payload)) for one in found] == [
        (FrameKind.SEND, b"abcd"),
        (FrameKind.SCHEDULE, b""),
        (FrameKind.SCHEDULE, b"e"),
    ]
    assert {(one.header.position, one.end, one.header.leader_time_ms) for one in found} == {
        (640, frame.end, 1_000)
    }
