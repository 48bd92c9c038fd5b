"""A look-up by id reads the id, not the bodies that share its checksum; a damaged id is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.changes import DONE
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFile
from tests.broker.engine.host import HOUR
from tests.storage.hours.hour_model import noted_reads

PLACES = pytest.mark.parametrize("hours", [5, 100], ids=["near", "far"])


def stored(host: Any, hours: int) -> None:
    """Messages that no read of this process has verified."""
    ids = [f"message-{k}" for k in range(200)]
    host.send([b"x" * 10_000] * 200, ids=ids, delay=hours * HOUR)
    host.flush()
    host.checkpoint(2)
    host.restart()


@PLACES
def test_bodies_are_not_read(host: Any, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(host, hours)
    read = noted_reads(monkeypatch, OsFile, "pread", lambda size, _: size)
    assert host.cancel(["message-7"]) == [DONE]
    assert sum(read) < 100_000


@PLACES
def test_a_damaged_id_is_no_other_message(host: Any, hours: int) -> None:
    stored(host, hours)
    folder = Path(host.folder)
    (file,) = folder.glob("hours/*/delay.log" if hours == 5 else "hours/far/*.run")
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"message-7x") + 8] ^= 1
    file.write_bytes(raw)
    with pytest.raises(CorruptionError):
        host.cancel(["message-7"])
