"""Feature levels: which formats a log may contain, so that old and new programs can run together.

A LEVEL frame gives a log its level: the first frame of each log, except for EPOCH_BEGIN frames,
gives it the first level, and a later one raises it. Only behind such a frame may the log contain
kinds and layouts that the level adds. A single broker raises its log at a start. A leader raises it
once every other node of the cluster is connected and has announced that it knows the level; from
then on a node that does not know it is refused. A program that finds a higher level, an unknown
kind of frame or an unknown version reports that the folder is newer, never that it is damaged.

    level  first release  what it adds
    4      0.2.0          everything in docs/FORMATS.md that names no level

Levels below the first one were those of release 0.1.0, whose logs have no LEVEL frame, and of
builds before 0.2.0. Their folders are refused.

For what every later format must keep, see docs/FORMATS.md, "How formats change".
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from delaylog.storage.errors import NewerFormatError, OlderFormatError
from delaylog.storage.layout import FRAME_VERSION, FrameHeader, FrameKind
from delaylog.storage.messages.batch import Block

FIRST_LEVEL: Final = 4
"""The level that every log has, and that every node knows."""
KNOWN_LEVEL: Final = 4
"""The highest level that this program reads and writes."""
_KIND_MAX: Final = max(FrameKind)


def check_level(level: int, what: str) -> None:
    """Raise NewerFormatError or OlderFormatError if this program does not read the level."""
    if level < FIRST_LEVEL:
        raise OlderFormatError(what)
    if level > KNOWN_LEVEL:
        raise NewerFormatError(
            f"{what} was written by a newer delaylog (feature level {level}; this one knows "
            f"{KNOWN_LEVEL}): run that release, or a later one, here"
        )


def is_known(header: FrameHeader) -> bool:
    """Whether this program knows the frame's version and kind."""
    return header.version == FRAME_VERSION and header.kind <= _KIND_MAX


def check_known(header: FrameHeader) -> None:
    """Raise NewerFormatError if the version or kind of an intact frame is unknown here."""
    if not is_known(header):
        raise NewerFormatError(
            f"the log was written by a newer delaylog (the frame at {header.position} has version "
            f"{header.version} and kind {header.kind}; this one knows version {FRAME_VERSION} and "
            f"kinds to {_KIND_MAX}, feature level {KNOWN_LEVEL}): run that release, or a later "
            "one, here"
        )


def encode_level(level: int, id_key: bytes) -> bytes:
    """The payload of a LEVEL frame; `id_key` = b"" leaves the log's key as it is."""
    members: dict[str, Any] = {"level": level}
    if id_key:
        members["id_key"] = id_key
    return bytes(msgpack.packb(members))


def decode_level(payload: Block) -> tuple[int, bytes]:
    """(level, key of the hash of ids or b"") of a LEVEL frame."""
    members = msgpack.unpackb(payload)
    return members["level"], members.get("id_key", b"")
