"""Makes snapshots of the keyspace in a child process, at the lowest priority.

The broker starts the child as `python -m` this module, writes the task as a line of JSON to the
child's standard input and keeps that pipe open. When the pipe closes, because the broker no longer
needs the snapshot or has ended, the child ends at once. The child reports the result as one line
on its standard output.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Final, NoReturn

from delaylog.broker.engine.keyspace.keyspace_files import SnapshotTask, make_snapshot
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotFailed
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem

_STOP_SECONDS: Final = 10.0
"""How long to wait for a killed child, which may hang in a disk call, before giving it up."""


class ChildRun:
    """One child, seen from the broker."""

    def __init__(self, task: SnapshotTask) -> None:
        """Start the child. Raises SnapshotFailed."""
        # Without -P the broker's working directory would come first on the import path.
        command = [sys.executable, "-P", "-m", __name__]
        try:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True
            )
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps(task.as_dict()).encode() + b"\n")
            self._child.stdin.flush()
        except OSError as error:
            raise SnapshotFailed(f"cannot start a process: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def size(self) -> int | None:
        """Size of the finished snapshot in bytes, or None while the child runs.

        Raises SnapshotFailed and CorruptionError.
        """
        status = self._child.poll()
        if status is None:
            return None
        assert self._child.stdout is not None
        said = self._child.stdout.read()
        try:
            told: dict[str, Any] = json.loads(said)
        except ValueError:
            raise SnapshotFailed(f"the snapshot process ended with status {status}") from None
        if "damage" in told:
            raise CorruptionError(**told["damage"])
        if "failed" in told:
            raise SnapshotFailed(told["failed"])
        size: int = told["size"]
        return size

    def stop(self) -> None:
        """End the child if it still runs."""
        child = self._child
        if child.poll() is None:
            child.kill()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


# --------------------------------------------------------------------------- the child


def _end_with_the_broker() -> None:
    """End this process when the broker's end of standard input is closed."""
    while os.read(0, 64):
        pass
    os._exit(1)


def _read_task() -> SnapshotTask:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65_536)
        if not part:
            os._exit(1)
        line += part
    return SnapshotTask(**json.loads(line))


def _make(task: SnapshotTask) -> dict[str, Any]:
    try:
        return {"size": make_snapshot(OsFileSystem(), task).size}
    except CorruptionError as error:
        names = ("what", "path", "position", "detail")
        return {"damage": {name: getattr(error, name) for name in names}}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def main() -> NoReturn:
    """Run a task. The result is the output line; the exit status adds nothing to it."""
    os.nice(19)
    # This process frees no objects before it ends, so collections would find nothing.
    gc.disable()
    task = _read_task()
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    # The broker may have ended meanwhile.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(_make(task)).encode() + b"\n")
    # Skip the interpreter's shutdown: freeing a million objects would only cost time.
    os._exit(0)


if __name__ == "__main__":
    main()
