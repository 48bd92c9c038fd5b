"""What another release has written is refused by name, never taken for damage or a torn tail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from delaylog.storage.checkpoint import Checkpoint, load_newest, write_checkpoint
from delaylog.storage.errors import CorruptionError, NewerFormatError, OlderFormatError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import (
    FIRST_LEVEL,
    KNOWN_LEVEL,
    Tick,
    check_level,
    decode_level,
    encode_frame,
    encode_level,
    frame_crc,
)
from delaylog.storage.log.log_reader import FrameHops, frames_in
from delaylog.storage.log.physical_log import PhysicalLog


def frame(position: int, *, kind: int | None = None, version: int | None = None) -> bytes:
    """A whole frame of this release, or with a kind or version of a later one."""
    parts, _ = encode_frame(
        FrameKind.TOPIC,
        [b"payload"],
        (1 << 16, 5, Tick()),
        position=position,
        synced_position=0,
    )
    raw = bytearray(b"".join(bytes(part) for part in parts))
    raw[4] = raw[4] if version is None else version
    raw[5] = raw[5] if kind is None else kind
    raw[12:16] = frame_crc(bytes(raw[:64]), raw[64:]).to_bytes(4, "little")
    return bytes(raw)


@pytest.fixture(params=[{"kind": 200}, {"version": 9}], ids=["kind", "version"])
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A log whose second frame this program does not know."""
    (tmp_path / "log").mkdir()
    first = frame(0)
    data = first + frame(len(first), **request.param)
    (tmp_path / "log" / f"{0:020d}.log").write_bytes(data)
    yield f"{tmp_path}/log"
    assert (tmp_path / "log" / f"{0:020d}.log").read_bytes() == data, "nothing was cut"


def test_a_start_refuses_frames_that_it_does_not_know(newer: str) -> None:
    log = PhysicalLog(OsFileSystem(), newer)
    with pytest.raises(NewerFormatError, match=r"newer delaylog.*frame at 71"):
        list(log.recover(0, 0))
    log.close()


def test_readers_refuse_frames_that_they_do_not_know(newer: str) -> None:
    raw = (Path(newer) / f"{0:020d}.log").read_bytes()
    with pytest.raises(NewerFormatError):
        list(frames_in(raw, 0))
    hops = FrameHops(OsFileSystem(), newer, start=0, end=len(raw))
    with pytest.raises(NewerFormatError):
        hops.run(10, lambda header: False)
    hops.close()


def test_damage_is_not_taken_for_a_newer_frame(tmp_path: Path) -> None:
    """A kind that rot has changed fails its checksum first."""
    raw = bytearray(frame(0))
    raw[5] = 200
    with pytest.raises(CorruptionError):
        list(frames_in(bytes(raw), 0))


def test_a_checkpoint_of_a_newer_level_is_refused_by_name(tmp_path: Path) -> None:
    fs = OsFileSystem()
    write_checkpoint(fs, str(tmp_path), {"level": KNOWN_LEVEL, "x": 1}, 0)
    assert load_newest(fs, str(tmp_path)) == Checkpoint({"level": KNOWN_LEVEL, "x": 1}, 0)
    write_checkpoint(fs, str(tmp_path), {"level": KNOWN_LEVEL + 1}, 0)
    with pytest.raises(
        NewerFormatError, match=f"feature level {KNOWN_LEVEL + 1}; this one knows {KNOWN_LEVEL}"
    ):
        load_newest(fs, str(tmp_path))


def test_a_checkpoint_of_a_log_without_frames_is_of_this_release(tmp_path: Path) -> None:
    """The two bytes in its header say so."""
    write_checkpoint(OsFileSystem(), str(tmp_path), {"level": 0}, 0)
    assert (tmp_path / "checkpoint-1").read_bytes()[6:8] == bytes([FIRST_LEVEL, 0])
    assert load_newest(OsFileSystem(), str(tmp_path)) == Checkpoint({"level": 0}, 0)


def test_known_payload_of_a_level_frame() -> None:
    assert msgpack.unpackb(encode_level(4, b"k" * 16)) == {"level": 4, "id_key": b"k" * 16}
    assert decode_level(encode_level(5, b"")) == (5, b"")


def test_levels_that_are_read() -> None:
    check_level(FIRST_LEVEL, "this")
    check_level(KNOWN_LEVEL, "this")
    with pytest.raises(OlderFormatError, match="this was written by delaylog 0"):
        check_level(FIRST_LEVEL - 1, "this")
