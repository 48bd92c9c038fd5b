"""`delaylog dump` of files of schedules: definitions and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.dump import _dumper
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from tests.broker.engine.schedules.rig import ScheduleHost


def dump(path: Path) -> list[dict[str, Any]]:
    """The lines of a dump."""
    file = ReadOnlyFileSystem().open(str(path))
    try:
        return list(_dumper(path)(file, path))
    finally:
        file.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two schedules, of which one was paused."""
    host = ScheduleHost(tmp_path / "data")
    host.put("a", b"secret", cron="0 9 * * *", zone="Europe/Berlin")
    host.put("b", b"secret", interval_ms=7_200_000)
    host.pause_one("b", "why")
    host.checkpoint(2)
    host.close()
    return tmp_path / "data"


def test_definitions_and_rows(folder: Path) -> None:
    """A line for each, without bodies; a record that is cut short is an error."""
    [path] = folder.glob("schedules/*.definitions")
    first, second = dump(path)
    assert (first["schedule"], first["zone"], first["note"]) == ("a", "Europe/Berlin", None)
    assert (second["schedule"], second["interval_ms"], second["note"]) == ("b", 7_200_000, "why")
    assert "secret" not in str(first)
    path.write_bytes(path.read_bytes()[:-1])
    assert dump(path) == [
        first,
        {"offset": second["offset"], "error": "no whole record from here on"},
    ]
    [path] = folder.glob("schedules/*.rows")
    rows = dump(path)
    assert [row["slot"] for row in rows] == [0, 1]
    assert [row["number"] for row in rows] == [first["number"], second["number"]]
    assert [row["flags"] for row in rows] == [2, 3]
    assert rows[1]["n"] == 1
    path.write_bytes(path.read_bytes()[:-1])
    assert dump(path)[-1] == {"offset": 0, "error": "the file ends within a row"}
