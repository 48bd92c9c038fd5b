"""The audit log of a node: what the broker calls, on its event loop, with a thread that writes.

An administrative call is carried out after its line `begun` is durable, or AuditError refuses it.
On a full disk such a line may use the disk's reserve, since an administrator may have to delete
messages or move the leadership then. All other lines are collected and synced twice a second. Lines
that are collected share a sync. While the disk refuses lines they wait in memory, up to
`PENDING_MAX`; the number of lines that found no room there becomes a line itself. The service log
is another log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.host.machine import Machine
from delaylog.broker.host.watch.audit_files import (
    ADMINISTRATIVE,
    AUDIT,
    BEGUN,
    DONE,
    FAILED,
    LEFT,
    LOST,
    STARTED,
    UNRECORDED,
    AuditFiles,
    AuditLine,
    AuditSettings,
    time_text,
)
from delaylog.broker.host.watch.metrics_table import families
from delaylog.storage.errors import DiskFullError, StorageError
from delaylog.storage.files.file_system import FileSystem

SYNC_SECONDS: Final = 0.5
"""Collected lines are written after this time, and a failed write is repeated."""
PENDING_MAX: Final = 20_000
"""Most lines in memory: about 10 MiB."""
WRITE_AT: Final = 1_000
"""When this many lines are collected, they are written without delay. Most lines of a write."""
REFUSALS_MAX: Final = 100
"""Distinct refusals between two writes that get a line each. Further ones share a line per
outcome."""
REFUSALS: Final = frozenset({"unauthorized", "forbidden"})
"""Outcomes that `refused` records."""

T = TypeVar("T")
log = logging.getLogger("delaylog.audit")


class AuditError(Exception):
    """The line of an administrative call is not durable: refuse the call and change nothing.

    `full` = the disk is full. The call may be repeated once the disk accepts lines again.
    """

    def __init__(self, detail: str, *, full: bool) -> None:
        self.full = full
        super().__init__(
            f"the audit log cannot be written ({detail}), so the call was not carried out"
        )


class AuditLog(Collector):
    """Records calls. All methods belong to the loop's thread."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        node: int,
        settings: AuditSettings,
        machine: Machine,
        make_room: Callable[[], bool],
    ) -> None:
        """`make_room` frees some space of the reserve, on any thread; False if nothing is left."""
        self.records = settings.records
        self.failing: Exception | None = None
        """Why the newest write failed; None if it succeeded."""
        self._on = settings.mode != "off"
        self._files = AuditFiles(fs, folder)
        self._node = node
        self._machine = machine
        self._make_room = make_room
        self._worker = machine.worker("delaylog-audit")
        self._pending: list[tuple[bytes, asyncio.Future[None] | None]] = []
        """Lines that are not durable, each with the call that waits for it."""
        self._refusals: dict[tuple[str | None, ...], AuditLine] = {}
        self._lost = 0
        """Lines that found no room in memory while the disk refused lines."""
        self._unreported_losses = 0
        self._urgent = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._stopped = False

    def collect(self) -> Iterator[Metric]:
        """Return the current values of its metrics."""
        return families(
            {
                "delaylog_audit_failing": int(self.failing is not None),
                "delaylog_audit_lost_lines_total": self._lost,
            }
        )

    def start(self) -> None:
        """Record the start, and write lines from now on."""
        if self._on:
            self._add(AuditLine(call=AUDIT, outcome=STARTED))
            self._urgent.set()
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def stop(self) -> None:
        """Write what is pending. A disk that fails is logged."""
        self._stopped = True
        self._urgent.set()
        if self._writing is not None:
            await self._writing
        if self._pending:
            log.error("audit lines are lost at the stop", extra={"lines": len(self._pending)})
        self._worker.shutdown(wait=False)

    async def carry(
        self,
        right: str,
        line_of: Callable[[str], AuditLine],
        work: Callable[[], Awaitable[T]],
        code_of: Callable[[Exception], str | None],
    ) -> T:
        """Carry out a call that needs `right`, and record it. Raises AuditError.

        `line_of` makes the line of an outcome; `code_of` returns the outcome of an error, None if
        the error was not expected.
        """
        if not self.records(right):
            return await work()
        outcome = FAILED
        try:
            if right in ADMINISTRATIVE:
                await self._durable(line_of(BEGUN))
            result = await work()
            outcome = DONE
            return result
        except AuditError:
            outcome = UNRECORDED
            raise
        except asyncio.CancelledError:
            outcome = LEFT
            raise
        except Exception as error:
            outcome = code_of(error) or FAILED
            raise
        finally:
            self.record(line_of(outcome))

    def record(self, line: AuditLine) -> None:
        """Record the outcome of a call, if the settings ask for calls of this right."""
        if self.records(line.right) and line.outcome not in REFUSALS:
            self._add(line)

    def refused(self, line: AuditLine) -> None:
        """Record a login that failed, or a call for which the caller lacks the right.

        Refusals that are alike share a line until it is written, so that a stranger cannot fill the
        disk. All refusals of a stranger are alike, because the stranger chooses the name of the
        call.
        """
        if not self._on:
            return
        call = None if line.principal is None else line.call
        key: tuple[str | None, ...] = (line.principal, line.address, line.face, call, line.outcome)
        if key not in self._refusals and len(self._refusals) >= REFUSALS_MAX:
            key = (line.outcome,)
            line = AuditLine(call=AUDIT, outcome=line.outcome)
        known = self._refusals.setdefault(key, line)
        known.count = 1 if known is line else (known.count or 0) + 1
        known.time = known.time or self._time()

    # ------------------------------------------------------------------ collecting

    def _time(self) -> str:
        return time_text(int(self._machine.wall_s() * 1_000))

    def _add(self, line: AuditLine, waiting: asyncio.Future[None] | None = None) -> bool:
        """Collect a line; False if there is no room for it."""
        if len(self._pending) >= PENDING_MAX:
            self._lost += 1
            self._unreported_losses += 1
            return False
        line.time, line.node = line.time or self._time(), self._node
        self._pending.append((line.encode(), waiting))
        if waiting is not None or (len(self._pending) >= WRITE_AT and self.failing is None):
            self._urgent.set()
        return True

    async def _durable(self, line: AuditLine) -> None:
        """Wait until a line is durable. Raises AuditError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._stopped or not self._add(line, done):
            raise self._error()
        await done

    def _error(self) -> AuditError:
        why = "the node stops" if self._stopped else str(self.failing or "too many lines wait")
        return AuditError(why, full=isinstance(self.failing, DiskFullError))

    # ------------------------------------------------------------------ writing

    async def _write(self) -> None:
        """Write what is collected: at once if a call waits for it, else twice a second."""
        while not self._stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(SYNC_SECONDS):
                    await self._urgent.wait()
            self._urgent.clear()
            await self._write_pending()
        await self._write_pending()

    async def _write_pending(self) -> None:
        refusals, self._refusals = self._refusals, {}
        for line in refusals.values():
            self._add(line)
        if self._unreported_losses and len(self._pending) < PENDING_MAX:
            self._add(AuditLine(call=AUDIT, outcome=LOST, count=self._unreported_losses))
            self._unreported_losses = 0
        left = len(self._pending)
        while left > 0:
            part = self._pending[: min(left, WRITE_AT)]
            lines = b"".join(line for line, _ in part)
            urgent = any(waiting is not None for _, waiting in self._pending)
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._worker, self._append, lines, urgent
                )
            except Exception as error:
                self._fail(error)
                return
            if self.failing is not None:
                log.warning("the audit log is written again")
                self.failing = None
            del self._pending[: len(part)]
            left -= len(part)
            for _, waiting in part:
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)

    def _append(self, lines: bytes, urgent: bool) -> None:
        """On the thread: append lines; if `urgent`, with one step of the reserve."""
        try:
            self._files.append(lines)
        except DiskFullError:
            if not (urgent and self._make_room()):
                raise
            self._files.append(lines)

    def _fail(self, error: Exception) -> None:
        """Refuse the calls that wait. The lines stay."""
        if self.failing is None:
            log.error(
                "the audit log cannot be written: administrative calls are refused",
                extra={"why": str(error)},
                exc_info=None if isinstance(error, (StorageError, OSError)) else error,
            )
        self.failing = error
        for at, (line, waiting) in enumerate(self._pending):
            if waiting is not None:
                self._pending[at] = (line, None)
                if not waiting.done():
                    waiting.set_exception(self._error())
