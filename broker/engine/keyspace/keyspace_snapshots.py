"""When the keyspace gets a new snapshot, and the work that has one made beside everything else.

The work only starts whoever makes it and looks now and then whether that has ended: a checkpoint
never waits for it, and names the result once it is there. Until then the log is kept from the old
snapshot on. A try that fails is told and made again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_files import (
    SnapshotTask,
    drop_snapshots,
    forget_task,
    make_snapshot,
)
from delaylog.broker.engine.state import EngineState
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.work import Work

LOOK_SECONDS: Final = 0.25
"""A snapshot takes seconds, and each look has the log synced."""
SMALL_BYTES: Final = 4 << 20
"""While space is short, a keyspace of this size is written here: with the reserve behind it."""


class SnapshotRun(Protocol):
    """One snapshot that is being made."""

    def size(self) -> int | None:
        """Bytes of the file once it is there, None until then.

        Raises SnapshotFailed, and StorageError for what ends a broker.
        """

    def stop(self) -> None:
        """Make it no further, if it goes on. When this returns it writes nothing any more."""


SnapshotRunner = Callable[[SnapshotTask], SnapshotRun]
"""Begins to make a snapshot. Called from a thread that may wait."""


class SnapshotFailed(Exception):
    """It was not made; the text says why. What was there is still there."""


class MadeHere:
    """A snapshot that was made at once, by whoever asked for it."""

    def __init__(self, fs: FileSystem, task: SnapshotTask) -> None:
        try:
            self._size = make_snapshot(fs, task).size
            self._failure = ""
        except DiskFullError as error:
            self._failure = str(error)

    def size(self) -> int | None:
        """It is there, or was not to be."""
        if self._failure:
            raise SnapshotFailed(self._failure)
        return self._size

    def stop(self) -> None:
        """It has ended."""


class KeyspaceSnapshots:
    """Snapshots of one engine."""

    def __init__(self, state: EngineState, *, lean_bytes: int, run: SnapshotRunner | None) -> None:
        """`run` makes them; without it they are made in the thread for jobs."""
        self._state = state
        self._lean_bytes = lean_bytes
        self._run = run or self._here
        self._task: SnapshotTask | None = None
        self.wanted_position = 0
        """Up to where the log is to go, however little it is."""
        self._not_before_ms = 0
        self.made = 0
        self.failed = 0
        self.on_failure: Callable[[str], None] = lambda why: None
        """Told why one was not made."""

    def _here(self, task: SnapshotTask) -> SnapshotRun:
        return MadeHere(self._state.fs, task)

    @property
    def running(self) -> bool:
        """Whether one is being made."""
        return self._task is not None

    def set_back(self, now_ms: int) -> None:
        """The clock went back."""
        soon = now_ms + self._state.limits.keyspace_retry_ms
        self._not_before_ms = min(self._not_before_ms, soon)

    def due(self, now_ms: int, *, short_of_space: bool) -> bool:
        """Whether one is to be made now."""
        state, base, limits = self._state, self._state.keyspace_base, self._state.limits
        if not self._may_begin() or now_ms < self._not_before_ms:
            return False
        if base.position < self.wanted_position:
            return True
        held = state.position - base.position
        if short_of_space:
            # It takes space before it gives some back.
            return held >= max(self._lean_bytes, 2 * (base.size + base.bytes))
        return base.bytes >= max(limits.keyspace_bytes, base.size) or held >= max(
            limits.keyspace_log_bytes, 8 * base.size
        )

    def _may_begin(self) -> bool:
        """Not in the middle of effects in pieces either: a snapshot holds whole ones only."""
        state = self._state
        return not (
            self._task is not None or not state.keyspace_base.frames or state.keyspace_pieces.begun
        )

    def work(
        self,
        clock: Callable[[], int],
        *,
        short_of_space: bool = False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Work:
        """Have a snapshot made of the log as it is now; it is given up when `stopping` says so."""
        state, base = self._state, self._state.keyspace_base
        if not self._may_begin():
            return
        task = self._task = SnapshotTask(
            state.folder,
            base.file,
            base.position,
            state.position,
            base.frames,
            base.bytes,
            f"{state.random.getrandbits(64):016x}",
        )
        small = short_of_space and base.size + base.bytes <= SMALL_BYTES
        runner = self._here if small else self._run
        runs: list[SnapshotRun] = []
        try:
            yield from state.until_committed()
            yield lambda: runs.append(runner(task))
            while (size := runs[0].size()) is None:
                if stopping():
                    return
                yield LOOK_SECONDS
            made = KeyspaceBase(task.name, size, task.position, task.frames, task.bytes)
            base.move_up(made)
            self.made += 1
        except SnapshotFailed as error:
            self.failed += 1
            self._not_before_ms = clock() + state.limits.keyspace_retry_ms
            self.on_failure(str(error))
            yield lambda: forget_task(state.fs, task)
        finally:
            # What is left of one that was given up goes with the next checkpoint.
            for run in runs:
                run.stop()
            self._task = None

    def drop(self, kept: set[str]) -> int:
        """Remove the files that neither a kept checkpoint nor the state names. Any thread."""
        task = self._task
        names = kept | {self._state.keyspace_base.file}
        if task is not None:
            names |= {task.name, task.aside_name}
        return drop_snapshots(self._state.fs, self._state.folder, names)
