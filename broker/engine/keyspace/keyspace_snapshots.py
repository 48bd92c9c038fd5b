"""The keyspace of a running engine: its effects go into the log, and snapshots are made of them.

Decides when the keyspace gets a new snapshot, and has it made in the background. The work starts a
runner, usually another process, and polls for its end. A checkpoint never waits for it, and names
the new snapshot once it exists. Until then the log is kept from the old snapshot on. A failed
attempt is reported and repeated later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgpack

from delaylog.broker.engine.keyspace.keyspace_files import (
    SnapshotTask,
    drop_snapshots,
    forget_task,
    make_snapshot,
)
from delaylog.broker.engine.keyspace.keyspace_part import KeyspaceBase, cut
from delaylog.broker.engine.state import EngineState
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX
from delaylog.storage.work import Work

# ------------------------------------------------------------------------------------ snapshots

SNAPSHOT_BYTES: Final = 64 << 20
"""Effects of Redis commands after which a snapshot is made, or the size of the last one if that is
larger: bounds what a start applies again, and what snapshots write."""
SNAPSHOT_LOG_BYTES: Final = 1 << 30
"""Log that may be kept only for the effects in it, or eight times the snapshot if that is more.
Beyond it a new snapshot is made, so that the log can be removed."""
RETRY_MS: Final = 30_000
"""Time between tries to make a snapshot when one has failed: a full disk seldom ends sooner."""
LOOK_SECONDS: Final = 0.25
"""Poll interval: a snapshot takes seconds, and each poll has the log synced."""
SMALL_BYTES: Final = 4 << 20
"""While space is short, a keyspace up to this size is written by this process, which may use the
reserve."""


class SnapshotRun(Protocol):
    """A snapshot that is being made."""

    def size(self) -> int | None:
        """Bytes of the finished file; None until then.

        Raises SnapshotFailed, or StorageError for an error that must stop the broker.
        """

    def stop(self) -> None:
        """Stop the attempt if it is running. When this returns, nothing is written any more."""


SnapshotRunner = Callable[[SnapshotTask], SnapshotRun]
"""Begins to make a snapshot. Called from a thread that may block."""


class SnapshotFailed(Exception):
    """The snapshot was not made; the text says why. The old one is still there."""


class MadeHere:
    """A snapshot that was made by the calling thread."""

    def __init__(self, fs: FileSystem, task: SnapshotTask) -> None:
        try:
            self._size = make_snapshot(fs, task).size
            self._failure = ""
        except DiskFullError as error:
            self._failure = str(error)

    def size(self) -> int | None:
        """The size of the file. Raises SnapshotFailed."""
        if self._failure:
            raise SnapshotFailed(self._failure)
        return self._size

    def stop(self) -> None:
        """Nothing is running."""


class KeyspaceSnapshots:
    """Snapshots of one engine."""

    def __init__(self, state: EngineState, *, lean_bytes: int, run: SnapshotRunner | None) -> None:
        """`run` makes them; None = the thread for jobs does."""
        self._state = state
        self._lean_bytes = lean_bytes
        self._here: SnapshotRunner = partial(MadeHere, state.fs)
        self._run = run or self._here
        self._task: SnapshotTask | None = None
        self.wanted_position = 0
        """Position below which the log is to be removed, even without other need of a snapshot."""
        self._not_before_ms = 0
        self.made = 0
        self.failed = 0
        self.on_failure: Callable[[str], None] = lambda why: None
        """Called with the reason of a failure."""

    @property
    def running(self) -> bool:
        """Whether one is being made."""
        return self._task is not None

    def set_back(self, now_ms: int) -> None:
        """The clock went back: do not wait longer than the retry interval."""
        self._not_before_ms = min(self._not_before_ms, now_ms + RETRY_MS)

    def due(self, now_ms: int, *, short_of_space: bool) -> bool:
        """Whether a snapshot is to be made now."""
        state, base = self._state, self._state.keyspace_base
        if not self._may_begin() or now_ms < self._not_before_ms:
            return False
        if base.position < self.wanted_position:
            return True
        log_bytes = state.position - base.position
        if short_of_space:
            # A snapshot takes space before it frees log.
            return log_bytes >= max(self._lean_bytes, 2 * (base.size + base.bytes))
        return base.bytes >= max(SNAPSHOT_BYTES, base.size) or log_bytes >= max(
            SNAPSHOT_LOG_BYTES, 8 * base.size
        )

    def _may_begin(self) -> bool:
        """Whether none is running, and no pieces are open: a snapshot has whole effects only."""
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
        """Have a snapshot made as of the present end of the log; abandoned once `stopping()`."""
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
            self._not_before_ms = clock() + RETRY_MS
            self.on_failure(str(error))
            yield lambda: forget_task(state.fs, task)
        finally:
            # Files of an abandoned attempt are removed by the next checkpoint.
            for run in runs:
                run.stop()
            self._task = None

    def drop(self, kept: set[str]) -> int:
        """Remove files that neither a kept checkpoint nor the state names. Any thread."""
        task = self._task
        names = kept | {self._state.keyspace_base.file}
        if task is not None:
            names |= {task.name, task.aside_name}
        return drop_snapshots(self._state.fs, self._state.folder, names)


# ------------------------------------------------------------------------- effects into the log

_TURN_BYTES: Final = 64 << 10
"""Initial buffer for the effects of a turn. The default of msgpack is 1 MiB, which the system has
to clear each time; that takes longer than packing.
"""


def log_keyspace(state: EngineState, now_ms: int) -> int:
    """Append pending effects, which are applied together; returns the end of the log.

    Raises NotLeadingError: the effects are still pending then, and the state is ahead of its log.
    """
    keyspace = state.keyspace
    if keyspace.effects:
        packed: bytes = msgpack.packb(keyspace.effects, buf_size=_TURN_BYTES)
        for payload in cut(packed, PAYLOAD_BYTES_MAX):
            # Only the first append can be refused, since nothing happens in between.
            state.append(FrameKind.KEYSPACE, payload, now_ms)
            state.keyspace_base.note(sum(map(len, payload)))
        keyspace.take_effects()
    return state.position
