"""What a broker writes can be read by its own user only, whatever the umask says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.starts.warm import PROGRAM


@pytest.fixture
def open_umask() -> Any:
    """A umask that would let others read and write; the broker inherits it."""
    before = os.umask(0)
    yield
    os.umask(before)


def _open_to_others(folder: Path) -> list[str]:
    """Every file and folder of the tree that anybody but its owner may use."""
    return [
        f"{path.relative_to(folder.parent)} {path.stat().st_mode & 0o777:o}"
        for path in [folder, *folder.rglob("*")]
        if path.stat().st_mode & 0o077
    ]


@pytest.mark.usefixtures("open_umask")
def test_data_and_backup_are_private(
    start_broker: Callable[..., Any], tmp_path: Path, topic: str
) -> None:
    """Messages of this hour, of a far one and Redis keys; then a stop and a backup."""
    broker = start_broker("--resp", "127.0.0.1:0", program=(PROGRAM,))
    for delay_ms in (0, 86_400_000):
        broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": delay_ms})
    assert broker.stop() == 0
    assert _open_to_others(broker.data_dir) == []
    target = tmp_path / "backup"
    subprocess.run([PROGRAM, "backup", str(broker.data_dir), str(target)], check=True)
    assert _open_to_others(target) == []


def test_a_folder_with_other_modes_still_opens(
    start_broker: Callable[..., Any], topic: str
) -> None:
    """A folder that was made readable for all keeps its modes and its messages."""
    broker = start_broker()
    broker.post(f"/v1/topics/{topic}/messages", {"id": "a", "body": "x", "delay_ms": 3_600_000})
    assert broker.stop() == 0
    for path in [broker.data_dir, *broker.data_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    broker.start()
    assert broker.call("GET", f"/v1/topics/{topic}/messages/a").status == 200
    assert broker.stop() == 0
