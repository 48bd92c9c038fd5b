"""The feature level of a folder: raised at a start, in its checkpoints, and refused above ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.apply import level_frames
from delaylog.storage.errors import NewerFormatError
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.levels import KNOWN_LEVEL, encode_level
from delaylog.storage.log.log_reader import frames_in


def kinds(folder: Path) -> list[int]:
    """Kinds of all frames of a log."""
    out: list[int] = []
    for path in sorted((folder / "log").glob("*.log")):
        out += [one.header.kind for one in frames_in(path.read_bytes(), int(path.stem))]
    return out


def test_a_new_folder_is_born_at_the_newest_level(open_host: Callable[..., Any]) -> None:
    """Its second frame says so, and gives it a key for its ids."""
    host = open_host()
    state = host.engine.state
    assert (state.level, len(state.id_key)) == (KNOWN_LEVEL, 16)
    assert kinds(host.folder)[:2] == [FrameKind.EPOCH_BEGIN, FrameKind.LEVEL]


def test_level_and_key_survive_with_and_without_a_checkpoint(
    open_host: Callable[..., Any],
) -> None:
    host = open_host()
    key = host.engine.state.id_key
    for again in (host.crash, host.checkpoint, host.crash, host.checkpoint, host.restart):
        again()
        assert (host.engine.state.level, host.engine.state.id_key) == (KNOWN_LEVEL, key)
    host.crash()
    assert kinds(host.folder).count(FrameKind.LEVEL) <= 1


def test_a_folder_of_level_1_is_raised_once_and_keeps_its_hash(
    open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows hold hashes made without a key."""
    with monkeypatch.context() as older:
        older.setattr("delaylog.broker.engine.engine.raise_level", lambda *_: False)
        host = open_host()
        assert host.engine.state.level == 1
        host.send([b"x"], ids=["one"], delay=60_000)
        host.checkpoint()
    host.restart()
    assert (host.engine.state.level, host.engine.state.id_key) == (KNOWN_LEVEL, b"")
    host.checkpoint()
    host.crash()
    assert kinds(host.folder).count(FrameKind.LEVEL) == 1
    assert host.find(["one"])[0] is not None


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_folder_above_our_level_is_refused_by_name(
    open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, with_checkpoint: bool
) -> None:
    """Nothing of it is changed, and the newer release opens it again."""
    host = open_host()
    host.send([b"x"], ids=["one"], delay=60_000)
    with monkeypatch.context() as newer:
        newer.setattr("delaylog.storage.log.levels.KNOWN_LEVEL", KNOWN_LEVEL + 1)
        assert level_frames.raise_level(host.engine.state, host.now_ms, KNOWN_LEVEL + 1)
        host.sync()
        if with_checkpoint:
            host.checkpoint()
        saved = host.folder.with_name("saved")
        shutil.copytree(host.folder, saved)
    wanted = f"feature level {KNOWN_LEVEL + 1}; this one knows {KNOWN_LEVEL}"
    with pytest.raises(NewerFormatError, match=wanted):
        type(host)(saved, now_ms=host.now_ms)
    with monkeypatch.context() as newer:
        newer.setattr("delaylog.storage.log.levels.KNOWN_LEVEL", KNOWN_LEVEL + 1)
        again = type(host)(saved, now_ms=host.now_ms)
        assert again.find(["one"])[0] is not None
        again.close()


def test_a_level_never_falls(open_host: Callable[..., Any]) -> None:
    host = open_host()
    level_frames.apply_level(host.engine.state, encode_level(1, b""))
    assert host.engine.state.level == KNOWN_LEVEL
    assert not level_frames.raise_level(host.engine.state, host.now_ms)
