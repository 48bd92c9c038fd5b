"""A start that takes long says how far it is: the replay, and a rebuild of the id index."""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.storage.files.os_file_system import OsFileSystem

HOUR = 3_600_000


def test_a_start_reports_its_replay_and_its_rebuild(host_class: Any, tmp_path: Any) -> None:
    host = host_class(tmp_path / "d")
    host.send(10, delay=HOUR, ids=[f"m{k}" for k in range(10)])
    host.checkpoint()
    for _ in range(200):
        host.send(1, delay=HOUR)
    host.close()
    shutil.rmtree(tmp_path / "d" / "ids")
    said: list[tuple[str, int, int]] = []
    engine = Engine(
        OsFileSystem(),
        str(tmp_path / "d"),
        Setup(random=Random(1), working=lambda *report: said.append(report)),
        now_ms=host.now_ms,
    )
    engine.close()
    assert said[0] == ("rebuilding the id index", 10, 10)
    replayed = [(done, total) for what, done, total in said if what == "replaying the log"]
    assert len(replayed) >= 3
    assert sorted(replayed) == replayed
    assert all(0 < done <= total for done, total in replayed)
    assert len({total for _, total in replayed}) == 1
