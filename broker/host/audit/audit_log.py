"""The audit log of a node: what the broker calls, on its event loop, with a thread that writes.

An administrative call is carried out after `begin` has returned: its line `begun` is durable then,
or AuditError refuses the call. On a full disk such a line may use the disk's reserve, since an
administrator may have to delete messages or move the leadership then. All other lines are collected
and synced twice a second. Lines of one turn share a sync. While the disk refuses lines they wait in
memory, up to `PENDING_MAX`; the number of lines that found no room there becomes a line itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from delaylog.broker.host.audit.files import AuditFiles
from delaylog.broker.host.audit.lines import AUDIT, BEGUN, LOST, AuditHead, AuditLine, time_text
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.broker.host.machine import Machine
from delaylog.storage.errors import DiskFullError, StorageError

SYNC_SECONDS: Final = 0.5
"""Collected lines are durable after this time and a sync."""
RETRY_SECONDS: Final = 1.0
PENDING_MAX: Final = 20_000
"""Most lines in memory: about 20 MiB."""
WRITE_AT: Final = 1_000
"""When this many lines are collected, they are written without delay."""
REFUSALS_MAX: Final = 100
"""Distinct refusals of one period that get a line each. Further ones share a line per outcome."""
UNRECORDED: Final = "audit_failed"
"""Outcome of an administrative call that was refused because `begin` failed."""
CANCELLED: Final = "cancelled"
"""Outcome of an administrative call whose caller left before it began."""

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


class AuditLog:
    """Records calls. All methods belong to the loop's thread."""

    def __init__(
        self,
        files: AuditFiles,
        settings: AuditSettings,
        machine: Machine,
        make_room: Callable[[], bool],
    ) -> None:
        """`make_room` frees some space of the reserve, on any thread; False if nothing is left."""
        self.settings = settings
        self.lines = 0
        """Lines that are durable."""
        self.lost = 0
        """Lines that found no room in memory while the disk refused lines."""
        self.failures = 0
        self.failing: Exception | None = None
        """Why the newest write failed; None if it succeeded."""
        self._files = files
        self._machine = machine
        self._make_room = make_room
        self._worker = machine.worker("delaylog-audit")
        self._pending: list[AuditLine] = []
        self._added = 0
        self._unreported_losses = 0
        self._refusals: dict[tuple[str | None, ...], AuditLine] = {}
        self._refusals_due_s = 0.0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def on(self) -> bool:
        """Whether anything is recorded."""
        return self.settings.mode != "off"

    @property
    def pending(self) -> int:
        """Lines that wait for the disk."""
        return len(self._pending)

    def head(self) -> AuditHead | None:
        """The newest durable line, for the log of messages."""
        return self._files.head

    def start(self) -> None:
        """Open the files, and record the start."""
        if self.on:
            self._write_soon()

    async def begin(self, line: AuditLine) -> None:
        """Record that an administrative call begins. Raises AuditError: then refuse the call."""
        if not self.on:
            return
        if self._stopped or not self._add(replace(line, outcome=BEGUN)):
            raise self._error()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((self._added, done))
        self._write_soon()
        try:
            await done
        except AuditError:
            self._add(replace(line, outcome=UNRECORDED))
            raise
        except asyncio.CancelledError:
            self._add(replace(line, outcome=CANCELLED))
            raise

    def record(self, line: AuditLine) -> None:
        """Record the outcome of a call, if the settings ask for calls of this right."""
        if self.settings.records(line.right):
            self._add(line)

    def refused(self, line: AuditLine) -> None:
        """Record a login that failed, or a call for which the caller lacks the right.

        Similar refusals of one period share a line, so that a stranger cannot fill the disk. All
        refusals of a stranger count as similar, because the stranger chooses the name of the call.
        """
        if not self.on:
            return
        key: tuple[str | None, ...]
        call = None if line.principal is None else line.call
        key = (line.principal, line.address, line.face, call, line.outcome)
        if key not in self._refusals and len(self._refusals) >= REFUSALS_MAX:
            key = (line.outcome,)
            line = AuditLine(call=AUDIT, outcome=line.outcome)
        known = self._refusals.get(key)
        if known is not None:
            known.count = (known.count or 0) + 1
            return
        if not self._refusals:
            self._refusals_due_s = self._machine.steady_s() + SYNC_SECONDS
        line.count, line.time = 1, self._time()
        self._refusals[key] = line
        self._write_later(SYNC_SECONDS)

    async def stop(self) -> None:
        """Write what is pending, and close the file. A disk that fails is logged."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self.on:
            self._write_soon()
        if self._writing is not None:
            await self._writing
        if self._pending:
            log.error("audit lines are lost at the stop", extra={"lines": len(self._pending)})
        self._worker.submit(self._files.close)
        self._worker.shutdown(wait=False)

    # ------------------------------------------------------------------ collecting

    def _time(self) -> str:
        return time_text(int(self._machine.wall_s() * 1_000))

    def _add(self, line: AuditLine) -> bool:
        """Collect a line; False if there is no room for it."""
        if len(self._pending) >= PENDING_MAX:
            self.lost += 1
            self._unreported_losses += 1
            return False
        # A copy, because fields that were set after the line was made are not bounded yet.
        self._pending.append(replace(line, time=line.time or self._time()))
        self._added += 1
        if len(self._pending) >= WRITE_AT and self.failing is None:
            self._write_soon()
        else:
            self._write_later(SYNC_SECONDS)
        return True

    def _collect(self) -> None:
        """Add the lines that summarise refusals and lost lines."""
        if self._stopped or self._machine.steady_s() >= self._refusals_due_s:
            refusals, self._refusals = self._refusals, {}
            for line in refusals.values():
                self._add(line)
        if self._unreported_losses and len(self._pending) < PENDING_MAX:
            count, self._unreported_losses = self._unreported_losses, 0
            self._add(AuditLine(call=AUDIT, outcome=LOST, count=count))

    def _error(self) -> AuditError:
        error = self.failing
        why = "the node stops" if self._stopped else str(error or "too many lines wait")
        return AuditError(why, full=isinstance(error, DiskFullError))

    # ------------------------------------------------------------------ writing

    def _write_later(self, seconds: float) -> None:
        if self._timer is None and self._writing is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._write_soon)

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Write all lines that are pending, and those that are added meanwhile by `begin`."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while True:
            self._collect()
            lines, now_ms = self._pending[:], int(self._machine.wall_s() * 1_000)
            urgent = bool(self._waiting)
            written, error = await loop.run_in_executor(
                self._worker, self._write_all, lines, now_ms, urgent
            )
            del self._pending[:written]
            self.lines += written
            self._note(error)
            durable = self._added - len(self._pending)
            while self._waiting and (self._waiting[0][0] <= durable or error is not None):
                number, done = self._waiting.popleft()
                if done.cancelled():
                    continue
                if number <= durable:
                    done.set_result(None)
                else:
                    done.set_exception(self._error())
            ending = self._stopped and (self._pending or self._refusals)
            if error is not None or not (self._waiting or self._unreported_losses or ending):
                break
        self._writing = None
        if self._pending or self._refusals or error is not None:
            self._write_later(RETRY_SECONDS if error is not None else SYNC_SECONDS)

    def _write_all(
        self, lines: list[AuditLine], now_ms: int, urgent: bool
    ) -> tuple[int, Exception | None]:
        """On the thread: how many lines are durable, and what ended the write early."""
        written = 0
        try:
            while True:
                written += self._write_some(lines[written:], now_ms, urgent)
                if written == len(lines):
                    break
            self._files.remove_old(now_ms)
        except Exception as error:
            return written, error
        return written, None

    def _write_some(self, lines: list[AuditLine], now_ms: int, urgent: bool) -> int:
        """Write as many lines as one write takes; if `urgent`, with one step of the reserve."""
        try:
            return self._files.write(lines, now_ms)
        except DiskFullError:
            if not (urgent and self._make_room()):
                raise
        return self._files.write(lines, now_ms)

    def _note(self, error: Exception | None) -> None:
        if error is None:
            if self.failing is not None:
                log.warning("the audit log is written again")
        else:
            self.failures += 1
            if self.failing is None:
                log.error(
                    "the audit log cannot be written: administrative calls are refused",
                    extra={"why": str(error)},
                    exc_info=None if isinstance(error, (StorageError, OSError)) else error,
                )
        self.failing = error
