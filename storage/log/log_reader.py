"""Reads segments of the physical log and tells a torn tail from corruption. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import (
    EPOCH_NODE_MASK,
    FRAME_HEADER_SIZE,
    FRAME_MAGIC,
    FrameHeader,
    FrameKind,
)
from delaylog.storage.log.frames import (
    Frame,
    check_header,
    check_known,
    check_level,
    decode_level,
    frame_crc,
    is_known,
)
from delaylog.storage.messages.batch import Block

_READ_BYTES: Final = 4 << 20


def segment_name(base: int) -> str:
    """File name of the segment that begins at `base`."""
    return f"{base:020d}.log"


def segment_bases(fs: FileSystem, folder: str) -> list[int]:
    """First positions of the segments in a folder, ascending."""
    return sorted(int(name[:-4]) for name in fs.listdir(folder) if name.endswith(".log"))


def scan_segment(file: File, base: int, position: int) -> Generator[Frame, None, int]:
    """Yield the intact frames of the segment at `base` from `position` on.

    Returns the position of the first frame that is not intact.
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
        check_known(header)
        yield Frame(header, payload)
        position += FRAME_HEADER_SIZE + header.payload_size


def check_begin(fs: FileSystem, folder: str) -> None:
    """Check the level of a log that begins at position 0, in a data folder without a checkpoint.

    Raises OlderFormatError or NewerFormatError.
    """
    path = f"{folder}/{segment_name(0)}"
    if not fs.exists(path):
        return
    with closing(fs.open(path)) as file:
        for frame in scan_segment(file, 0, 0):
            kind = frame.header.kind
            if kind != FrameKind.EPOCH_BEGIN:
                level = decode_level(frame.payload)[0] if kind == FrameKind.LEVEL else 0
                check_level(level, "the log of this folder")
                return


def read_frame(file: File, base: int, position: int) -> Frame | None:
    """The frame at `position` of the segment at `base`; None when it is damaged or missing."""
    raw = file.pread(FRAME_HEADER_SIZE, position - base)
    header = check_header(raw, position) if len(raw) == FRAME_HEADER_SIZE else None
    if header is None:
        return None
    payload = file.pread(header.payload_size, position - base + FRAME_HEADER_SIZE)
    if frame_crc(raw, payload) != header.crc:
        return None
    check_known(header)
    return Frame(header, payload)


def read_frames(file: File, base: int, start: int, end: int, bytes_max: int) -> bytes:
    """The bytes of whole frames of the segment at `base`, from `start` up to at most `end`.

    At least one frame, and as many as fit in `bytes_max`. Only their headers are checked: the node
    that receives them verifies the rest. Raises CorruptionError for a bad header.
    """
    raw = file.pread(min(max(bytes_max, FRAME_HEADER_SIZE), end - start), start - base)
    at = 0
    while at + FRAME_HEADER_SIZE <= len(raw):
        header = check_header(raw[at : at + FRAME_HEADER_SIZE], start + at)
        if header is None:
            path = segment_name(base)
            raise CorruptionError("a bad frame", path=path, position=start + at)
        size = FRAME_HEADER_SIZE + header.payload_size
        if at == 0 and size > len(raw):
            raw = file.pread(size, start - base)
        if at + size > len(raw):
            break
        at += size
    return raw[:at]


def frames_in(data: Block, start: int) -> Iterator[Frame]:
    """The frames in `data`, the bytes of whole frames from position `start` on.

    Payloads are views. Raises CorruptionError for a damaged frame.
    """
    whole = memoryview(data)
    at = 0
    while at < len(whole):
        raw = bytes(whole[at : at + FRAME_HEADER_SIZE])
        header = check_header(raw, start + at) if len(raw) == FRAME_HEADER_SIZE else None
        behind = at + FRAME_HEADER_SIZE + (header.payload_size if header else 0)
        payload = whole[at + FRAME_HEADER_SIZE : behind]
        if header is None or behind > len(whole) or frame_crc(raw, payload) != header.crc:
            raise CorruptionError("a bad frame", path="log", position=start + at)
        check_known(header)
        yield Frame(header, payload)
        at = behind


class FrameHops:
    """Walks the written frames from `start` to `end` by their headers, and reads some payloads.

    It may run while the log is written: it opens the files itself, and skips segments that are
    removed meanwhile (`position` is the position where it continues). One thread at a time.
    """

    _WINDOW_BYTES: Final = 256 << 10

    def __init__(self, fs: FileSystem, folder: str, *, start: int, end: int) -> None:
        self._fs = fs
        self._folder = folder
        self.position = start
        self.end = end
        self.skipped = False
        """Whether frames after `start` had been removed already."""
        self._file: File | None = None
        self._base = 0
        self._size = 0
        self._window, self._window_at = b"", 0

    def run(self, frames_max: int, wanted: Callable[[FrameHeader], bool]) -> list[Frame]:
        """Pass `frames_max` frames; return the wanted ones. Raises CorruptionError."""
        out: list[Frame] = []
        for _ in range(frames_max):
            if self.position >= self.end:
                break
            if self._file is None or self.position - self._base >= self._size:
                self._open()
                continue
            raw = self._bytes(self.position - self._base, FRAME_HEADER_SIZE)
            header = check_header(raw, self.position) if len(raw) == FRAME_HEADER_SIZE else None
            if header is None:
                raise self._corrupt()
            if not is_known(header) or wanted(header):
                at = self.position - self._base + FRAME_HEADER_SIZE
                payload = self._bytes(at, header.payload_size)
                if frame_crc(raw, payload) != header.crc:
                    raise self._corrupt()
                check_known(header)
                out.append(Frame(header, payload))
            self.position += FRAME_HEADER_SIZE + header.payload_size
        return out

    def _bytes(self, at: int, size: int) -> bytes:
        if not self._window_at <= at or at + size > self._window_at + len(self._window):
            assert self._file is not None, "a segment is open"
            self._window = self._file.pread(max(size, self._WINDOW_BYTES), at)
            self._window_at = at
        return self._window[at - self._window_at : at - self._window_at + size]

    def _open(self) -> None:
        """Open the segment with the position, or the first existing segment after it."""
        self.close()
        bases = segment_bases(self._fs, self._folder)
        base = max((b for b in bases if b <= self.position), default=bases[0])
        try:
            file = self._fs.open(f"{self._folder}/{segment_name(base)}")
        except FileNotFoundError:
            return
        self._file, self._base, self._size = file, base, file.size()
        if base > self.position:
            self.position, self.skipped = base, True
        elif self.position - base >= self._size:
            raise self._corrupt()

    def _corrupt(self) -> CorruptionError:
        path = f"{self._folder}/{segment_name(self._base)}"
        return CorruptionError("a bad frame", path=path, position=self.position)

    def close(self) -> None:
        """Close its file."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._window = b""


class Durable(NamedTuple):
    """The position up to which a log is known to be synced, and the index of its node."""

    end: int
    node: int = 0


def judge_tail(
    fs: FileSystem,
    folder: str,
    bases: Sequence[int],
    what: str,
    position: int,
    durable: Durable,
) -> None:
    """Tell a torn tail from corruption: look for proof that bytes from `position` were synced.

    `bases` are the segments from the one that holds `position`. Raises CorruptionError when there
    is such proof.
    """
    path = f"{folder}/{segment_name(bases[0])}"
    if position < durable.end:
        raise CorruptionError(
            what, path=path, position=position, detail=f"durable to {durable.end}"
        )
    for base in bases:
        with closing(fs.open(f"{folder}/{segment_name(base)}")) as file:
            proof = _find_later_sync(file, base, position, durable.node)
        if proof is not None:
            raise CorruptionError(
                what,
                path=path,
                position=position,
                detail=f"the frame at {proof} says that it had been synced",
            )


def _find_later_sync(file: File, base: int, position: int, node: int) -> int | None:
    """Position of an intact later frame whose `synced_position` is greater than `position`.

    A frame of another node states what that node had synced, so it proves nothing here.
    """
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
                ours = header is not None and header.epoch & EPOCH_NODE_MASK == node
                if header is not None and ours and header.synced_position > position:
                    payload = file.pread(header.payload_size, at + found + FRAME_HEADER_SIZE)
                    if frame_crc(raw, payload) == header.crc:
                        return where
            found = window.find(magic, found + 1)
        at += max(len(window) - 3, 1)
    return None
