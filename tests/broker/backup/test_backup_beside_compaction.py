"""Backups while compaction replaces the files of an hour, one by one.

Method: a folder is kept as it is when the new files are complete beside the old ones. Before a
call of the backup, and before each further one, the replacement makes one of its steps; this is
done for every call with which it can begin.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.storage.errors import CorruptionError
from delaylog.storage.hours import hour_rewrite
from delaylog.storage.hours.compaction import Removal
from delaylog.storage.layout import hour_name
from tests.broker.backup.test_backup import Between, back_up
from tests.broker.engine.host import HOUR
from tests.broker.verify.damaged_folder import flip
from tests.broker.verify.verifying import verify

FILES = ("delay.log", "delay.index", "extents", "second.index")


@pytest.fixture
def place(open_host: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hour in a folder with old and new files; `rewritten.tmp` is missing yet."""
    host = open_host()
    host.configure(ended_keep_ms=0)
    ids = [f"m{k}" for k in range(600)]
    bodies = [text.encode() * 9 for text in ids]
    for first in range(0, 600, 200):
        part = slice(first, first + 200)
        host.send(bodies[part], ids=ids[part], delay=5 * HOUR)
        host.flush()
    host.cancel(ids[::2])
    host.flush()
    host.checkpoint(2)
    hours, hour = host.engine.state.hours, (host.now_ms + 5 * HOUR) // HOUR
    gone = np.arange(600) % 2 == 0
    monkeypatch.setattr(hour_rewrite, "_replace", lambda fs, folder: None)
    removal = Removal(gone, np.zeros(600, np.bool_), states=False)
    for step in hours.compact(hour, removal):
        if callable(step):
            step()
    monkeypatch.undo()
    shutil.copytree(host.folder, tmp_path / "source")
    made = tmp_path / "source" / "hours" / hour_name(hour)
    (made / "rewritten.tmp").unlink()
    return made


def replacement(place: Path) -> Iterator[None]:
    """The steps of `HourRewrite.replace` that others can see."""
    (place / "rewritten.tmp").touch()
    yield
    for name in FILES:
        (place / f"{name}.tmp").rename(place / name)
        yield
    (place / "rewritten.tmp").unlink()


def test_a_backup_beside_a_replacement(place: Path, tmp_path: Path) -> None:
    """All files of the backup are old, or all are new."""
    for lead in itertools.count():
        source, dest = tmp_path / f"source-{lead}", tmp_path / f"backup-{lead}"
        shutil.copytree(tmp_path / "source", source)
        steps = replacement(source / "hours" / place.name)
        calls = itertools.count()

        def step(lead: int = lead, steps: Iterator[None] = steps, calls: Any = calls) -> None:
            if next(calls) >= lead:
                next(steps, None)

        back_up(Between(step), source, dest)
        assert verify(dest).damage == []
        if lead > next(calls):
            assert lead > 20
            return


@pytest.mark.parametrize("done", range(6))
def test_a_backup_of_an_interrupted_replacement(place: Path, tmp_path: Path, done: int) -> None:
    """A broker was killed after some steps: the backup has the files that its start would use."""
    for _ in itertools.islice(replacement(place), done):
        pass
    back_up(Between(lambda: None), tmp_path / "source", tmp_path / "backup")
    assert verify(tmp_path / "backup").damage == []


@pytest.mark.parametrize("done", [1, 3, 6])
def test_damage_of_an_hour_that_was_replaced(place: Path, tmp_path: Path, done: int) -> None:
    """Damage is reported: only files that change under the backup are copied again."""
    for _ in itertools.islice(replacement(place), done):
        pass
    path = place / ("delay.log.tmp" if done == 1 else "delay.log")
    flip(path, 100 * 8)
    with pytest.raises(CorruptionError, match="do not match their checksum"):
        back_up(Between(lambda: None), tmp_path / "source", tmp_path / "backup")
