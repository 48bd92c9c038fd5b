"""Background work: generators of slices and I/O jobs, between the requests of one loop.

Slices run on the loop and yield to it after two milliseconds; between two slices, of whichever
work, the loop has turns for other calls. Jobs run one at a time on an I/O thread; jobs that only
read run on a second thread. Two works of the same name never run at once.
Work that finds no disk space ends, and its caller spawns it again; any other failure ends the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.commits.log_commits import DISK_RETRY_SECONDS, LogCommits
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.slices import SLICE_SECONDS, drive
from delaylog.broker.host.turn_shares import Turnstile
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.work import IoJob, ReadJob, Work, until

_LEADERSHIP_ENDED: Final = "this node lost its leadership during the call; ask the leader"

log = logging.getLogger("delaylog.node")


class Background:
    """Runs work. All methods belong to the loop's thread."""

    def __init__(
        self,
        commits: LogCommits,
        loop: asyncio.AbstractEventLoop,
        on_fatal: Callable[[BaseException], None],
        *,
        on_end: Callable[[], None],
        machine: Machine,
    ) -> None:
        """`on_end` is called whenever spawned work has ended, with or without an error."""
        self._commits = commits
        self._loop = loop
        self._on_fatal = on_fatal
        self._on_end = on_end
        self._now = machine.steady_s
        self._stile = Turnstile(self._now, gap_s_max=SLICE_SECONDS)
        self._io = machine.worker("delaylog-io")
        self._reads = machine.worker("delaylog-reads")
        self._tasks: dict[asyncio.Task[None], Work] = {}
        self._running: set[str] = set()
        self._waiting_for_space: set[str] = set()
        self._refusing = False
        self._halting = False
        self._halts = 0
        self._left: list[tuple[Work, Future[None]]] = []

    @property
    def refusing(self) -> bool:
        """Whether new work is refused because the node shuts down."""
        return self._refusing

    @property
    def busy(self) -> bool:
        """Whether spawned work runs."""
        return bool(self._tasks)

    @property
    def exchanging(self) -> bool:
        """Whether new work is refused because the engine is being replaced."""
        return self._halting and not self._refusing

    # ------------------------------------------------------------------ running

    def spawn(self, name: str, make: Callable[[], Work]) -> bool:
        """Start background work unless work of this name runs; returns whether it was started."""
        if name in self._running or self._refusing or self._halting:
            return False
        self._running.add(name)
        work = make()
        task = self._loop.create_task(self._guard(name, work))
        self._tasks[task] = work
        task.add_done_callback(self._forget)
        return True

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]

    async def _guard(self, name: str, work: Work) -> None:
        try:
            await self._drive(work)
            self._waiting_for_space.discard(name)
        except NoDescriptorError as error:
            log.warning(
                "background work waits for a descriptor", extra={"work": name, "why": str(error)}
            )
            await asyncio.sleep(DISK_RETRY_SECONDS)
        except DiskFullError as error:
            if name not in self._waiting_for_space:
                self._waiting_for_space.add(name)
                log.warning(
                    "background work waits for disk space", extra={"work": name, "why": str(error)}
                )
            self._commits.found_full()
            await asyncio.sleep(DISK_RETRY_SECONDS)
        except asyncio.CancelledError:
            raise
        except NotLeadingError:
            # The work belonged to a leadership that has ended.
            pass
        except Exception as error:
            self._on_fatal(error)
        finally:
            self._running.discard(name)
            self._on_end()

    async def run(self, work: Work) -> None:
        """Run work to its end while the caller waits; raises the errors of the work.

        A `halt` ends the work, and between `halt` and `go_on` none begins, because the engine that
        it uses is being replaced. Raises NotLeadingError then.
        """
        if self._halting:
            work.close()
            raise NotLeadingError(_LEADERSHIP_ENDED)
        # Counted now: the first slice may have to wait for its turn.
        steps = self._until_halted(work, self._halts)
        try:
            await self._drive(steps)
        finally:
            # Close the generator now. Garbage collection would close it when the last traceback
            # that refers to it is freed, and its files may be closed by then.
            steps.close()

    def _until_halted(self, work: Work, halts: int) -> Work:
        try:
            if (yield from until(lambda: self._halts != halts, work)):
                return
        except Exception:
            if self._halts == halts:
                raise
        raise NotLeadingError(_LEADERSHIP_ENDED)

    async def _drive(self, work: Work) -> None:
        await self._stile.pass_one()
        await drive(
            work,
            now=self._now,
            pause=self._stile.pass_one,
            committed=self._committed,
            done=partial(self._done, work),
        )

    async def _committed(self, seconds: float) -> None:
        # Work waits for a sync: request one, since during a shutdown, and by some fsync settings,
        # no other caller does.
        self._commits.appended()
        if self._commits.written_is_safe:
            self._commits.kick()
        await asyncio.sleep(seconds)

    async def _done(self, work: Work, step: IoJob) -> None:
        job = (self._reads if isinstance(step, ReadJob) else self._io).submit(step)
        try:
            await asyncio.wrap_future(job, loop=self._loop)
        except asyncio.CancelledError:
            if self._halting:
                self._left.append((work, job))
            raise
        await self._stile.pass_one()

    # ------------------------------------------------------------------ ends

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        """A block in which no work runs or begins; see `halt`."""
        try:
            await self.halt()
            yield
        finally:
            self.go_on()

    async def halt(self) -> None:
        """Cancel all spawned work, wait for the running jobs, and accept no work until `go_on`.

        For an engine that is replaced while the process goes on: when this returns, no spawned
        work uses that engine any more, and no work begins that could still use it once another
        engine has opened its files. Work driven by `run` belongs to its callers: its running job
        has ended too, and its next step raises NotLeadingError. A cancelled `halt` still waits for
        the end, because its caller may close the files next.
        """
        self._halting = True
        self._halts += 1
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        ending = self._loop.create_task(self._end(tasks))
        try:
            await asyncio.shield(ending)
        finally:
            await asyncio.wait([ending])

    async def _end(self, tasks: dict[asyncio.Task[None], Work]) -> None:
        """Close the work of cancelled tasks after their jobs have ended."""
        await asyncio.gather(*tasks, return_exceptions=True)
        # Each thread runs its jobs in order: when this empty job ends, all earlier ones have ended.
        for pool in (self._io, self._reads):
            await asyncio.wrap_future(pool.submit(_nothing), loop=self._loop)
        left, self._left = self._left, []
        for work, job in left:
            self._tell(work, job)
        for work in tasks.values():
            work.close()
        # A task that was cancelled before its first step did not run its `finally`.
        self._running.clear()
        self._waiting_for_space.clear()

    def go_on(self) -> None:
        """Accept work again, for the present engine."""
        self._halting = False
        self._on_end()

    def _tell(self, work: Work, job: Future[None]) -> None:
        """Throw the error of its last job into cancelled work, so that a failed sync is noticed."""
        error = None if job.cancelled() else job.exception()
        if error is None:
            return
        try:
            work.throw(error)
        except (StopIteration, DiskFullError):
            pass
        except Exception as failure:
            self._on_fatal(failure)

    def refuse(self) -> None:
        """Start no more work: the node shuts down."""
        self._refusing = True

    async def finished(self) -> None:
        """Wait for all running work to end."""
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)

    def shutdown(self) -> None:
        """End the threads after their running jobs."""
        self._io.shutdown()
        self._reads.shutdown()


def _nothing() -> None:
    pass
