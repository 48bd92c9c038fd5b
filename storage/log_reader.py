"""Reads segments of the physical log and tells a torn tail from rot. Changes nothing."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from delaylog.storage.errors import CorruptionError
from delaylog.storage.file_system import File, FileSystem
from delaylog.storage.frames import Frame, check_header, frame_crc
from delaylog.storage.layout import FRAME_HEADER_SIZE, FRAME_MAGIC

_READ_BYTES: Final = 4 << 20


def segment_name(base: int) -> str:
    """File name of the segment that begins at `base`."""
    return f"{base:020d}.log"


def segment_bases(fs: FileSystem, folder: str) -> list[int]:
    """First positions of the segments in a folder, ascending."""
    return sorted(int(name[:-4]) for name in fs.listdir(folder) if name.endswith(".log"))


def scan_segment(file: File, base: int, position: int) -> Generator[Frame, None, int]:
    """Yield good frames of the segment at `base` from `position` on.

    Returns the position of the first that is not good.
    """
    size = file.size()
    window, window_at = b"", 0
    while True:
        at = position - base
        if at + FRAME_HEADER_SIZE > size:
            return position
        if not window_at <= at or at + FRAME_HEADER_SIZE > window_at + len(window):
            window, window_at = file.pread(_READ_BYTES, at), at
        raw = window[at - window_at : at - window_at + FRAME_HEADER_SIZE]
        header = check_header(raw, position)
        if header is None:
            return position
        body_at = at + FRAME_HEADER_SIZE
        if body_at + header.payload_size > size:
            return position
        if body_at + header.payload_size > window_at + len(window):
            window = file.pread(max(_READ_BYTES, header.payload_size), body_at)
            window_at = body_at
        payload = window[body_at - window_at : body_at - window_at + header.payload_size]
        if frame_crc(raw, payload) != header.crc:
            return position
        yield Frame(header, payload)
        position += FRAME_HEADER_SIZE + header.payload_size


def judge_tail(
    fs: FileSystem,
    folder: str,
    bases: Sequence[int],
    what: str,
    position: int,
    durable_end: int,
) -> None:
    """Tell a torn tail from rot: look for proof that bytes from `position` on were synced.

    `bases` are the segments from the one that holds `position`. Raises CorruptionError for rot.
    """
    path = f"{folder}/{segment_name(bases[0])}"
    if position < durable_end:
        raise CorruptionError(
            what, path=path, position=position, detail=f"durable to {durable_end}"
        )
    for base in bases:
        file = fs.open(f"{folder}/{segment_name(base)}")
        try:
            proof = _find_later_sync(file, base, position)
        finally:
            file.close()
        if proof is not None:
            raise CorruptionError(
                what,
                path=path,
                position=position,
                detail=f"the frame at {proof} says that it had been synced",
            )


def _find_later_sync(file: File, base: int, position: int) -> int | None:
    """Position of a whole later frame whose `synced_position` lies behind `position`."""
    size = file.size()
    at = max(position - base, 0)
    magic = FRAME_MAGIC.to_bytes(4, "little")
    while at < size:
        window = file.pread(_READ_BYTES, at)
        found = window.find(magic)
        while found >= 0:
            where = base + at + found
            raw = file.pread(FRAME_HEADER_SIZE, at + found)
            if len(raw) == FRAME_HEADER_SIZE and where > position:
                header = check_header(raw, where)
                if header is not None and header.synced_position > position:
                    payload = file.pread(header.payload_size, at + found + FRAME_HEADER_SIZE)
                    if frame_crc(raw, payload) == header.crc:
                        return where
            found = window.find(magic, found + 1)
        at += max(len(window) - 3, 1)
    return None
