"""The feature level of a folder: given at a start, kept, refused above and below ours.

A level above ours is an artificial one, of a release that is to come.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from delaylog.broker.engine.errors import ConflictError
from delaylog.storage.errors import NewerFormatError, OlderFormatError
from delaylog.storage.layout import FILE_HEADER, FrameKind
from delaylog.storage.log.frames import FIRST_LEVEL, KNOWN_LEVEL, Tick, encode_frame, encode_level
from delaylog.storage.log.log_reader import frames_in
from tests.broker.engine.host import Host
from tests.broker.engine.member import Member

NEXT_LEVEL = KNOWN_LEVEL + 1


def kinds(folder: Path) -> list[int]:
    """Kinds of all frames of a log."""
    out: list[int] = []
    for path in sorted((folder / "log").glob("*.log")):
        out += [one.header.kind for one in frames_in(path.read_bytes(), int(path.stem))]
    return out


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextmanager
def next_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context in which the program knows one level more."""
    with monkeypatch.context() as patched:
        for module in ("delaylog.storage.log.frames", "delaylog.broker.engine.engine"):
            patched.setattr(f"{module}.KNOWN_LEVEL", NEXT_LEVEL)
        yield


def test_a_new_folder_is_born_at_the_newest_level(host: Any) -> None:
    """Its second frame says so, and gives it a key for its ids."""
    state = host.engine.state
    assert (state.level, len(state.id_key)) == (KNOWN_LEVEL, 16)
    assert kinds(host.folder)[:2] == [FrameKind.EPOCH_BEGIN, FrameKind.LEVEL]


def test_a_new_log_of_a_cluster_has_its_level_before_anything_else(tmp_path: Path) -> None:
    """Whatever its first leader appends first."""
    member = Member(tmp_path, 1_000)
    member.lead(1_000)
    assert member.engine.state.level == 0
    member.engine.make_topic("t", 1_000)
    member.log.write_pending()
    member.log.sync()
    state = member.engine.state
    assert (state.level, len(state.id_key)) == (FIRST_LEVEL, 16)
    assert kinds(tmp_path) == [FrameKind.EPOCH_BEGIN, FrameKind.LEVEL, FrameKind.TOPIC]
    member.close()


def test_level_and_key_survive_with_and_without_a_checkpoint(host: Any) -> None:
    key = host.engine.state.id_key
    for again in (host.crash, host.checkpoint, host.crash, host.checkpoint, host.restart):
        again()
        assert (host.engine.state.level, host.engine.state.id_key) == (KNOWN_LEVEL, key)
    host.crash()
    assert kinds(host.folder).count(FrameKind.LEVEL) <= 1


def test_a_folder_is_raised_once_and_keeps_its_key(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = host.engine.state.id_key
    host.send([b"x"], ids=["one"], delay=60_000)
    host.checkpoint()
    with next_release(monkeypatch):
        host.restart()
        assert (host.engine.state.level, host.engine.state.id_key) == (NEXT_LEVEL, key)
        host.checkpoint()
        host.crash()
        assert (host.engine.state.level, host.engine.state.id_key) == (NEXT_LEVEL, key)
        assert kinds(host.folder).count(FrameKind.LEVEL) == 2
        assert host.find(["one"])[0] is not None


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_folder_above_our_level_is_refused_by_name(
    host: Any, monkeypatch: pytest.MonkeyPatch, with_checkpoint: bool
) -> None:
    """Nothing of it is changed, and the newer release opens it again."""
    host.send([b"x"], ids=["one"], delay=60_000)
    with next_release(monkeypatch):
        assert host.engine.raise_level(NEXT_LEVEL, host.now_ms)
        host.sync()
        if with_checkpoint:
            host.checkpoint()
        saved = host.folder.with_name("saved")
        shutil.copytree(host.folder, saved)
    wanted = f"feature level {NEXT_LEVEL}; this one knows {KNOWN_LEVEL}"
    with pytest.raises(NewerFormatError, match=wanted):
        type(host)(saved, now_ms=host.now_ms)
    with next_release(monkeypatch):
        again = type(host)(saved, now_ms=host.now_ms)
        assert again.find(["one"])[0] is not None
        again.close()


def topic_frame(position: int) -> bytes:
    """A frame as release 0.1.0 wrote it behind EPOCH_BEGIN, or at the start of a log."""
    stamp = (1 << 16, 5, Tick())
    parts, _ = encode_frame(FrameKind.TOPIC, [b"\x80"], stamp, position=position, synced_position=0)
    return b"".join(map(bytes, parts))


def old_checkpoint(content: bytes) -> bytes:
    """The bytes of a checkpoint as release 0.1.0 wrote it: its header names no level."""
    magic, version, _, a, b, size, _ = FILE_HEADER.unpack_from(content)
    payload = content[FILE_HEADER.size :]
    head = FILE_HEADER.pack(magic, version, 0, a, b, size, 0)
    return FILE_HEADER.pack(magic, version, 0, a, b, size, crc32c(payload, crc32c(head))) + payload


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_folder_of_0_1_0_is_refused_and_stays_as_it_is(
    open_host: Callable[..., Any], tmp_path: Path, with_checkpoint: bool
) -> None:
    """Its logs have no LEVEL frame, and its checkpoints name no level."""
    folder = tmp_path / "old"
    if with_checkpoint:
        host = open_host()
        host.send([b"x"], ids=["one"], delay=60_000)
        host.checkpoint()
        shutil.copytree(host.folder, folder)
        for path in folder.glob("checkpoint-*"):
            path.write_bytes(old_checkpoint(path.read_bytes()))
    else:
        (folder / "log").mkdir(parents=True)
        (folder / "log" / f"{0:020d}.log").write_bytes(topic_frame(0))
        (folder / "ids").mkdir()
        (folder / "ids" / "data.mdb").write_bytes(b"lmdb")
    before = contents(folder)
    with pytest.raises(
        OlderFormatError, match=r"written by delaylog 0\.1\.0.*start with an empty data folder"
    ):
        Host(folder)
    assert contents(folder) == before


def test_a_level_never_falls(host: Any) -> None:
    with pytest.raises(OlderFormatError):
        host.engine.state.apply_level(encode_level(FIRST_LEVEL - 1, b""))
    assert host.engine.state.level == KNOWN_LEVEL
    assert not host.engine.raise_level(FIRST_LEVEL, host.now_ms)


def test_what_the_log_may_not_contain_yet_is_refused(host: Any) -> None:
    state = host.engine.state
    state.need_level(KNOWN_LEVEL, "notes")
    with pytest.raises(ConflictError, match="runs a release without notes: upgrade it first"):
        state.need_level(NEXT_LEVEL, "notes")
