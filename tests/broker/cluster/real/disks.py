"""A fake disk for several threads: a lock around each operation, and syncs that take their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.storage.fake_disk import DiskCrashed, FakeDisk, FakeFile, Survival


class LockedMapping:
    """A mapping whose reads of the file are locked."""

    def __init__(self, mapping: Any, lock: threading.RLock) -> None:
        self._mapping, self._lock = mapping, lock

    @property
    def buffer(self) -> Any:
        return self._mapping.buffer

    def forget(self, start: int, size: int) -> None:
        with self._lock:
            self._mapping.forget(start, size)

    def close(self) -> None:
        self._mapping.close()


class LockedFile:
    """An open file; one operation of its disk at a time."""

    def __init__(self, file: FakeFile, disk: ThreadedDisk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._file, name)

        def locked(*args: Any, **how: Any) -> Any:
            if name == "fdatasync":
                self._disk.wait()
            with self._disk.lock:
                out = call(*args, **how)
            return LockedMapping(out, self._disk.lock) if name.startswith("map_") else out

        return locked


class ThreadedDisk(FakeDisk):
    """What one node's threads share. `tell` hears of the crash, from any thread."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.lock = threading.RLock()
        self.sync_seconds = 0.0

    def wait(self) -> None:
        if self.sync_seconds:
            time.sleep(self.random.random() * self.sync_seconds)

    def open(self, path: str, *, create: bool = False) -> Any:
        with self.lock:
            return LockedFile(super().open(path, create=create), self)

    def operate(
        self,
        kind: str,
        path: str,
        act: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
        *,
        begun: Callable[[], None] | None = None,
    ) -> None:
        with self.lock:
            super().operate(kind, path, act, failed, begun=begun)
            self.log.clear()

    def off(self) -> None:
        """The power goes now."""
        with self.lock:
            self.crashed = True

    def on_again(self, survival: Survival, seed: int) -> ThreadedDisk:
        """The disk as the next life finds it."""
        with self.lock:
            found = self.restart(survival, seed)
        after = ThreadedDisk(seed)
        after.root = found.root
        return after


__all__ = ["DiskCrashed", "ThreadedDisk"]
for _name in ("exists", "listdir", "mkdir", "rename", "unlink", "remove_tree", "sync_folder"):

    def _make(name: str = _name) -> Callable[..., Any]:
        def call(self: ThreadedDisk, *args: Any, **how: Any) -> Any:
            with self.lock:
                return getattr(FakeDisk, name)(self, *args, **how)

        return call

    setattr(ThreadedDisk, _name, _make())
