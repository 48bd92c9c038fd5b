"""The process that makes snapshots: it ends with the broker, and says what became of its task."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER, SnapshotTask, snapshot_name
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotFailed
from delaylog.broker.host.system.snapshot_child import ChildRun
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.engine.keyspace_work import put
from tests.waiting import await_that

Start = Callable[[SnapshotTask], ChildRun]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """One with a key in its log."""
    engine = Engine(
        OsFileSystem(),
        str(tmp_path / "d"),
        Setup(random=Random(1), make_snapshot=ChildRun),
        now_ms=1,
    )
    put(engine, 1, b"a", b"1")
    engine.state.log.write_pending()
    engine.state.log.sync()
    yield engine
    engine.close()


def task_of(engine: Engine) -> SnapshotTask:
    base, state = engine.state.keyspace_base, engine.state
    return SnapshotTask(
        state.folder, base.file, base.position, state.position, base.frames, base.bytes, "t"
    )


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children that are stopped in the end."""
    runs: list[ChildRun] = []

    def make(task: SnapshotTask) -> ChildRun:
        runs.append(ChildRun(task))
        return runs[-1]

    yield make
    for run in runs:
        run.stop()


def outcome(run: ChildRun) -> int:
    """Wait for it; what a broker is told."""
    return await_that(run.size) or 0


def test_it_makes_the_file_of_a_task(engine: Engine, start: Start) -> None:
    size = outcome(start(task_of(engine)))
    path = Path(engine.folder, FOLDER, snapshot_name(engine.state.position))
    assert path.stat().st_size == size


def test_the_work_of_the_engine_uses_it(engine: Engine) -> None:
    engine.run_inline(engine.upkeep.snapshots.work(lambda: 1))
    assert engine.upkeep.snapshots.made == 1
    engine.run_inline(engine.upkeep.checkpoint(lambda: 1))
    engine.close()
    again = Engine(OsFileSystem(), engine.folder, Setup(random=Random(1)), now_ms=1)
    assert again.state.keyspace.databases[0].values == {b"a": b"1"}
    assert again.state.keyspace_base.file
    again.close()
    # The fixture closes what is open.
    engine.__init__(OsFileSystem(), engine.folder, Setup(random=Random(1)), now_ms=1)  # type: ignore[misc]


def test_one_that_is_killed_has_failed(engine: Engine, start: Start) -> None:
    run = start(task_of(engine))
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(SnapshotFailed, match="status -9"):
        outcome(run)


def test_it_says_why_it_failed(engine: Engine, start: Start) -> None:
    with pytest.raises(SnapshotFailed, match="FileNotFoundError"):
        outcome(start(replace(task_of(engine), token="no/such/folder")))


def test_damage_that_it_meets_is_damage(engine: Engine, start: Start) -> None:
    with pytest.raises(CorruptionError, match="frames of the keyspace are missing") as caught:
        outcome(start(replace(task_of(engine), frames=7)))
    assert caught.value.path == f"{engine.folder}/log"


def test_it_ends_when_the_broker_has_gone(engine: Engine, start: Start) -> None:
    """Whoever holds the other end of its input dies, or closes it."""
    run = start(task_of(engine))
    assert run._child.stdin is not None
    run._child.stdin.close()
    assert run._child.wait(30) is not None


def test_it_tells_nobody_when_the_broker_has_gone(
    engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    """A traceback of it would stand in the broker's log."""
    run = ChildRun(task_of(engine))
    assert run._child.stdout is not None
    run._child.stdout.close()
    run._child.wait(30)
    run.stop()
    assert capfd.readouterr().err == ""


def test_it_is_stopped_at_once(engine: Engine) -> None:
    run = ChildRun(task_of(engine))
    run.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(run.pid, 0)
