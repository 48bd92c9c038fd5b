"""Reads configured files again without a restart: on request, and when one of them has changed.

Each source reads its files on a thread and hands over a function that puts the result into use on
the loop. If its files cannot be used, what was read before stays in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delaylog.broker.host.machine import Machine
from delaylog.broker.host.settings import ConfigError

LOOK_SECONDS: Final = 1.0
"""Interval of the checks for changed files. A change takes effect when two checks have found the
same files, so that a certificate is not read while its key is still being replaced.
"""
RETRY_LOOKS: Final = 60
"""A source that failed is read again after this number of checks, although its files are the same:
a certificate may have become valid.
"""

Use: TypeAlias = Callable[[], Awaitable[None]]
Read: TypeAlias = Callable[[], Use]
Signature: TypeAlias = tuple[tuple[int, int, int] | None, ...]

log = logging.getLogger("delaylog.reload")


class ReloadError(Exception):
    """Some files cannot be used; what was read before stays in use. The text says why."""


@dataclass(slots=True, eq=False)
class _Source:
    name: str
    files: tuple[str, ...]
    read: Read
    seen: Signature
    """The files at the last check."""
    tried: Signature
    """The files when they were last read, successfully or not."""
    fault: str | None = None
    """Why the last reload failed."""
    looks: int = 0
    """Checks since the last reload."""


class Reloader:
    """The sources of one process. All methods belong to the loop's thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sources: list[_Source] = []
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self.counts: Counter[tuple[str, str]] = Counter()
        """The number of reloads by source and result, `ok` or `failed`. A failure that repeats
        itself without a change of the files counts once."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Called after each source that was read again."""
        self.retry_looks = RETRY_LOOKS

    @property
    def failing(self) -> dict[str, int]:
        """By source, 1 while its newest reload has failed, else 0."""
        return {source.name: int(source.fault is not None) for source in self._sources}

    def register(self, name: str, files: Sequence[str], read: Read) -> None:
        """Add a source whose files have just been read for the first time.

        `read` is called on a thread, raises ConfigError, and returns the function that puts the
        content into use, which is awaited on the loop.
        """
        signature = _signature(files)
        self._sources.append(_Source(name, tuple(files), read, signature, signature))
        for result in ("ok", "failed"):
            self.counts[name, result] = 0

    def start(self) -> None:
        """Begin to watch the files."""
        if self._sources:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Stop watching the files."""
        for task in (self._task, *self._asked):
            if task is not None:
                task.cancel()

    async def reload(self) -> list[str]:
        """Read all sources again and return their names. Raises ReloadError after trying all."""
        faults = []
        async with self._lock:
            for source in self._sources:
                fault = await self._reload(source, asked=True)
                if fault is not None:
                    faults.append(fault)
        if faults:
            raise ReloadError("; ".join(faults))
        return [source.name for source in self._sources]

    def reload_soon(self) -> asyncio.Task[None]:
        """Read all sources again, for a signal. Faults are logged."""
        log.info("asked to read the configured files again")
        task = asyncio.get_running_loop().create_task(self._reload_quietly())
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return task

    async def _reload_quietly(self) -> None:
        try:
            await self.reload()
        except ReloadError:
            # Each fault has been logged.
            return

    async def _reload(self, source: _Source, *, asked: bool = False) -> str | None:
        """Read one source again. A fault is logged, counted and returned, and one that an
        unasked reload has found before is only returned.
        """
        before, files = source.fault, source.tried
        try:
            source.tried, source.looks = await self._look(source), 0
            use = await self._machine.in_thread(source.read)
            await use()
            if self.after is not None:
                await self.after()
        except Exception as error:
            return self._failed(
                source, error, again=not asked and source.tried == files, before=before
            )
        source.fault = None
        self.counts[source.name, "ok"] += 1
        log.info("%s was read again", source.name)
        return None

    def _failed(self, source: _Source, error: Exception, *, again: bool, before: str | None) -> str:
        """Note a fault; one that is found `again`, and is that of `before`, is not logged."""
        bug = None if isinstance(error, ConfigError) else error
        source.fault = f"{source.name} stays as it was: {error}"
        if not again or source.fault != before:
            self.counts[source.name, "failed"] += 1
            log.error("%s", source.fault, exc_info=bug)
        return source.fault

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for source in self._sources:
                try:
                    await self._watch_one(source)
                except Exception as error:
                    self._failed(source, error, again=True, before=source.fault)

    async def _watch_one(self, source: _Source) -> None:
        now = await self._look(source)
        source.looks += 1
        again = source.fault is not None and source.looks >= self.retry_looks
        if now == source.seen and (again or now != source.tried):
            async with self._lock:
                await self._reload(source)
        source.seen = now

    async def _look(self, source: _Source) -> Signature:
        # On a thread: a stat of a file on a network file system may block.
        return await self._machine.in_thread(lambda: _signature(source.files))


def _signature(files: Sequence[str]) -> Signature:
    """What changes when a file is written or replaced: inode, size and time of the last change."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            at = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((at.st_ino, at.st_size, at.st_mtime_ns))
    return tuple(found)
