"""Background work: generators of slices and I/O jobs, between the requests of one loop.

Slices run on the loop and give way after two milliseconds. Jobs run one at a time on a thread of
their own, those that only read on another one. Work of one name runs once at a time. Without space
it ends and is tried again by whoever calls for it; any other failure ends the node.
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
from delaylog.broker.host.commits.group_commit import DISK_RETRY_SECONDS
from delaylog.broker.host.commits.log_commits import LogCommits
from delaylog.broker.host.machine import REAL, Machine
from delaylog.broker.host.slices import drive
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.work import IoJob, ReadJob, Work, until

_LEADERSHIP_ENDED: Final = "the leadership ended meanwhile; ask the leader"

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
        machine: Machine = REAL,
    ) -> None:
        """`on_end` is called whenever spawned work has ended, however it did."""
        self._commits = commits
        self._loop = loop
        self._on_fatal = on_fatal
        self._on_end = on_end
        self._now = machine.steady_s
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
        """Whether no work begins any more."""
        return self._refusing

    @property
    def exchanging(self) -> bool:
        """Whether none begins because another engine is about to take this one's place."""
        return self._halting and not self._refusing

    # ------------------------------------------------------------------ running

    def spawn(self, name: str, make: Callable[[], Work]) -> bool:
        """Run background work unless work of this name runs already; whether it was begun."""
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
            # It belonged to a leadership that has ended.
            pass
        except Exception as error:
            self._on_fatal(error)
        finally:
            self._running.discard(name)
            self._on_end()

    async def run(self, work: Work) -> None:
        """Run work to its end for somebody who waits for it; its errors are the caller's.

        After a `halt` it goes no further, nor does it begin before `go_on`: what it looks at is
        gone. Raises NotLeadingError then.
        """
        if self._halting:
            work.close()
            raise NotLeadingError(_LEADERSHIP_ENDED)
        steps = self._until_halted(work)
        try:
            await self._drive(steps)
        finally:
            # Not when the last traceback lets go of it: its files may be closed by then.
            steps.close()

    def _until_halted(self, work: Work) -> Work:
        halts = self._halts
        try:
            if (yield from until(lambda: self._halts != halts, work)):
                return
        except Exception:
            if self._halts == halts:
                raise
        raise NotLeadingError(_LEADERSHIP_ENDED)

    async def _drive(self, work: Work) -> None:
        await drive(
            work,
            now=self._now,
            pause=partial(asyncio.sleep, 0),
            committed=self._committed,
            done=partial(self._done, work),
        )

    async def _committed(self, seconds: float) -> None:
        # Work waits for the log: see that somebody commits it, even on the way out.
        self._commits.appended()
        await asyncio.sleep(seconds)

    async def _done(self, work: Work, step: IoJob) -> None:
        job = (self._reads if isinstance(step, ReadJob) else self._io).submit(step)
        try:
            await asyncio.wrap_future(job, loop=self._loop)
        except asyncio.CancelledError:
            if self._halting:
                self._left.append((work, job))
            raise

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
        """End all spawned work where it stands, and the job that runs; accept none until `go_on`.

        For an engine that is dropped while the process lives on: when this returns, no spawned
        work touches it any more, and none begins that would go on with it when another engine
        stands on its files. What `run` drives belongs to its callers: the job that it began
        is over too, and it goes no further. Cancelled, it comes to its end all the same: whoever
        gives up may close the files next.
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
        """Close the work of cancelled tasks, each behind its job."""
        await asyncio.gather(*tasks, return_exceptions=True)
        # A thread runs one job after the other: behind this one there is none of theirs.
        for pool in (self._io, self._reads):
            await asyncio.wrap_future(pool.submit(_nothing), loop=self._loop)
        left, self._left = self._left, []
        for work, job in left:
            self._tell(work, job)
        for work in tasks.values():
            work.close()
        # Of work that was cancelled before it began, nothing ran that could have said so.
        self._running.clear()
        self._waiting_for_space.clear()

    def go_on(self) -> None:
        """Accept work again: it finds the engine that it is to work for."""
        self._halting = False
        self._on_end()

    def _tell(self, work: Work, job: Future[None]) -> None:
        """Tell work that was cancelled how its last job ended: a failed sync is not passed over."""
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
        """Begin no more work: the node is on its way out."""
        self._refusing = True

    async def finished(self) -> None:
        """Wait for the work that runs."""
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)

    def shutdown(self) -> None:
        """End the threads after the jobs that run."""
        self._io.shutdown()
        self._reads.shutdown()


def _nothing() -> None:
    pass
