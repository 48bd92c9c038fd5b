"""Folders of nodes: the same hours, byte by byte, but for what each writes in its own way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.drills import compare as module
from delaylog.broker.drills.compare import compare
from delaylog.storage.checkpoint import write_checkpoint
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.layout import hour_of_name
from tests.broker.engine.host import Host

HOUR = "2026-11-21T20Z"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: Any) -> dict[int, Path]:
    """Three alike. Whether each is sound is another question, and has its own tests."""
    monkeypatch.setattr(module, "verify_folder", lambda fs, folder, report: ())
    made = {}
    for node in (1, 2, 3):
        hour = tmp_path / f"node-{node}" / "hours" / HOUR
        hour.mkdir(parents=True)
        (hour / "delay.index").write_bytes(b"\1" * 3_000_000)
        (hour / "state").write_bytes(b"\2" * 100)
        (hour / "extents").write_bytes(bytes([node]))
        made[node] = tmp_path / f"node-{node}"
    return made


def test_alike(folders: dict[int, Path]) -> None:
    with (folders[2] / "hours" / HOUR / "state").open("ab") as file:
        file.write(bytes(4_096))
    found = compare(folders)
    assert (found.hours, found.wrong) == (1, []), "a hole at the end is nothing"


def test_a_byte_is_named(folders: dict[int, Path]) -> None:
    with (folders[3] / "hours" / HOUR / "delay.index").open("r+b") as file:
        file.seek(2_000_000)
        file.write(b"\7")
    first, second = compare(folders).wrong
    assert first.startswith("nodes 1 and 3 differ")
    assert "delay.index, byte 2,000,000 (row " in second


def test_a_missing_file_is_a_difference(folders: dict[int, Path]) -> None:
    (folders[1] / "hours" / HOUR / "state").unlink()
    assert len(compare(folders).wrong) == 2


def test_what_only_the_log_has_is_not_compared(folders: dict[int, Path], tmp_path: Path) -> None:
    """Purpose: a leader that lost its majority while it stopped has saved no last checkpoint; its
    states of before are no difference. With one, they are."""
    one = Host(tmp_path / "engine")
    one.send(1)
    one.sync()
    shutil.copytree(one.folder, folders[2], dirs_exist_ok=True)
    (folders[2] / "hours" / HOUR / "state").write_bytes(b"\0" * 100)
    found = compare(folders)
    assert (found.hours, found.unsaved, found.wrong) == (1, [2], [])
    members = {"hours": {hour_of_name(HOUR): [0] * 5}}
    write_checkpoint(OsFileSystem(), str(folders[2]), members, one.engine.state.log.end_position)
    one.close()
    found = compare(folders)
    assert (found.unsaved, len(found.wrong)) == ([], 2)


def test_an_hour_that_a_node_has_removed_is_none(folders: dict[int, Path]) -> None:
    hour = folders[1] / "hours" / HOUR
    for file in hour.iterdir():
        file.unlink()
    hour.rmdir()
    assert compare(folders).wrong == []


def test_runs_of_the_far_tier_are_each_nodes_own(folders: dict[int, Path]) -> None:
    """Also an hour that one of them has not finished to split off is none to compare."""
    table = HourTable()
    table.set_border(hour_of_name("2026-11-21T22Z") or 0)
    for node, folder in folders.items():
        (folder / "hours" / "far").mkdir()
        (folder / "hours" / "far" / "1.run").write_bytes(bytes([node]))
        begun = folder / "hours" / "2026-11-21T23Z"
        begun.mkdir()
        (begun / "delay.index").write_bytes(bytes(node))
        members = {"hours": {hour_of_name(HOUR): [0] * 5}, "far": {"hours": table.saved()}}
        write_checkpoint(OsFileSystem(), str(folder), members, 9, 9)
    found = compare(folders)
    assert (found.hours, found.wrong) == (1, [])
