"""Looking needs no right to write: verify and dump on folders that are mounted read-only.

Such a mount is imitated where files are opened, since the tests may run as root, for whom
permissions do not count.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.main import main

_open = os.open


def refuse_writers(path: Any, flags: int, *rest: Any, **named: Any) -> int:
    """As a file system that is mounted read-only; a file that is there may be opened O_CREAT."""
    there = os.path.exists(path)
    if flags & (os.O_WRONLY | os.O_RDWR) or (flags & os.O_CREAT and not there):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return _open(path, flags, *rest, **named)


@pytest.fixture
def folder(start_broker: Any, tmp_path: Path) -> Path:
    """A copy of a folder that was served."""
    broker = start_broker()
    message = {"body": "x", "id": "a", "delay_ms": 7_200_000}
    assert broker.call("POST", "/v1/topics/t/messages", message).status == 200
    assert broker.stop() == 0
    place = tmp_path / "copy"
    shutil.copytree(broker.data_dir, place, ignore=shutil.ignore_patterns("reserve"))
    return place


@pytest.mark.parametrize("locked", [True, False])
def test_verify_and_dump(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, *, locked: bool
) -> None:
    """With a lock file and without one, as in a backup."""
    if not locked:
        (folder / "lock").unlink()
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(os, "open", refuse_writers)
    assert main(["verify", str(folder)]) == 0, capsys.readouterr()
    for pattern in ("tick", "checkpoint-*", "log/*.log", "hours/*/delay.log", "ids/*"):
        for file in folder.glob(pattern):
            assert main(["dump", str(file)]) == 0, file
    assert sorted(folder.rglob("*")) == before


def test_a_read_only_folder_that_is_served(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Its lock is still respected."""
    served = start_broker()
    monkeypatch.setattr(os, "open", refuse_writers)
    assert main(["verify", str(served.data_dir)]) == 2
    assert re.search(r"in use by process \d+; stop it first", capsys.readouterr().err)
