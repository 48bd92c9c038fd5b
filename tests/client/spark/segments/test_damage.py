"""Damage of one file of a folder is named, or skipped and counted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from delaylog.storage.layout import EXTENT_SIZE, STATE_ENTRY_SIZE
from pyspark_delaylog.segments.errors import DamagedError
from tests.broker.engine.host import HOUR, Host
from tests.broker.verify.damaged_folder import flip
from tests.client.spark.segments.folder_table import FIRST, START_HOUR, moment, rows


@pytest.fixture
def damaged(host: Host) -> Path:
    """An hour of two flushes of three rows, of which one is acked, and an hour of two rows."""
    host.send(3, delay=1_000)
    host.flush()
    host.send(3, delay=2_000)
    host.send(2, delay=HOUR)
    host.advance(1_000)
    host.ack(host.receive(1))
    host.checkpoint()
    assert [row["state"] for row in rows(host.folder, includeBody="true")].count("acked") == 1
    return host.folder


@pytest.mark.parametrize(
    ("name", "bit", "lost", "text"),
    [
        ("delay.index", 8 * 10, 3, "false"),
        ("delay.index", 8 * (112 * 4 + 50), 3, "false"),
        ("delay.log", 3, 3, "true"),
        ("delay.log", 3, 0, "false"),
        ("state", 8 * 9, 1, "false"),
        ("extents", 8 * 20, 6, "false"),
        ("extents", 8 * (EXTENT_SIZE + 20), 3, "false"),
    ],
)
def test_rot_is_named_or_skipped_and_counted(
    damaged: Path, name: str, bit: int, lost: int, text: str
) -> None:
    path = damaged / "hours" / FIRST / name
    flip(path, bit)
    if lost:
        with pytest.raises(DamagedError, match=str(path)):
            rows(damaged, includeText=text)
    found = rows(damaged, includeText=text, onCorrupt="skip")
    assert Counter(row["state"] == "damaged" for row in found) == Counter(
        {k: v for k, v in {True: lost, False: 8 - lost}.items() if v}
    )
    assert {row["hour"] for row in found if row["state"] == "damaged"} <= {
        moment(START_HOUR * HOUR)
    }
    assert len(rows(damaged, topic="t", includeText=text, onCorrupt="skip")) == 8 - lost


@pytest.mark.parametrize("name", ["delay.index", "delay.log", "extents"])
def test_torn_files_are_named_or_skipped_and_counted(damaged: Path, name: str) -> None:
    path = damaged / "hours" / FIRST / name
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DamagedError, match=str(path)):
        rows(damaged, includeBody="true")
    found = rows(damaged, includeBody="true", onCorrupt="skip")
    assert [row["state"] for row in found].count("damaged") == 3
    assert len(found) == 8


def test_a_short_state_column_is_one_of_a_backup(damaged: Path) -> None:
    os.truncate(damaged / "hours" / FIRST / "state", STATE_ENTRY_SIZE)
    assert [row["state"] for row in rows(damaged)].count("acked") == 1


def test_the_newest_whole_checkpoint_counts(host: Host) -> None:
    host.send(1, delay=HOUR)
    host.checkpoint()
    host.send(1, delay=HOUR)
    host.checkpoint()
    names = sorted(host.folder.glob("checkpoint-*"))
    flip(names[-1], 400)
    assert len(rows(host.folder)) == 1
    flip(names[0], 400)
    with pytest.raises(DamagedError, match="no checkpoint"):
        rows(host.folder)
