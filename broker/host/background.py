"""Background work between the requests of one loop: slices, I/O jobs, and their share of turns.

Slices run on the loop and yield to it after two milliseconds; between two slices, of whichever
work, the loop has turns for other calls. Jobs run one at a time on an I/O thread; jobs that only
read run on a second thread. Two works of the same name never run at once.
Work that finds no disk space ends, and its caller spawns it again; any other failure ends the node.

`TurnShares` leaves turns to small calls. A batch over a thousand hours, or a slice of background
work, takes milliseconds. A delivery or a single send takes some turns from its timer or socket to
its answer. If each of these turns held a large piece of other work, the small call would wait for
all of them; so a piece is followed by turns without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Final

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.log_commits import DISK_RETRY_SECONDS, LogCommits
from delaylog.broker.host.machine import Machine
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.work import IoJob, ReadJob, Work, until

# ------------------------------------------------------------------- slices of two milliseconds

SLICE_SECONDS: Final = 0.002


def run_slice(
    work: Work, error: Exception | None, now: Callable[[], float]
) -> IoJob | float | None:
    """Run work until its slice is over (returns None) or it has to wait.

    Returns the job that the work waits for, or the seconds after which it checks again whether the
    log is committed. `error` is the error of its last job, `now` a steady clock in seconds. Raises
    StopIteration when the work has ended.
    """
    began = now()
    step = next(work) if error is None else work.throw(error)
    while step is None and now() - began < SLICE_SECONDS:
        step = next(work)
    return step


async def drive(
    work: Work,
    *,
    now: Callable[[], float],
    pause: Callable[[], Awaitable[None]],
    committed: Callable[[float], Awaitable[None]],
    done: Callable[[IoJob], Awaitable[None]],
) -> None:
    """Run work to its end. Errors of its jobs are thrown into the work; its errors are raised."""
    error: Exception | None = None
    while True:
        try:
            step = run_slice(work, error, now)
        except StopIteration:
            return
        error = None
        try:
            if step is None:
                await pause()
            elif isinstance(step, float):
                await committed(step)
            else:
                await done(step)
        except Exception as failure:
            error = failure


# -------------------------------------------------------------------------- shares of the turns

GAP_TURNS: Final = 4
"""Turns between two large pieces: a single send takes this number from its socket to the log, and a
delivery from its due time to its answer. An empty turn takes 20 us."""
BESIDE_SECONDS: Final = 1.0
"""After a single send, another one is expected for this time."""


class Turnstile:
    """Lets its callers pass one by one, in order of arrival, with a gap after each."""

    def __init__(self, now: Callable[[], float], *, gap_s_max: float = inf) -> None:
        """`now` returns the seconds of a steady clock; a gap ends after `gap_s_max`, so that the
        callers keep a share of a loop whose turns are long.
        """
        self._now, self._gap_s_max = now, gap_s_max
        self._gap_until = 0.0
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def crowded(self) -> bool:
        """Whether somebody waits to pass."""
        return bool(self._waiting)

    async def pass_one(self) -> None:
        """Wait for a turn. The caller must do its piece of work before it waits again."""
        loop = asyncio.get_running_loop()
        if self._busy:
            mine = loop.create_future()
            self._waiting.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():
                    # This caller had its turn already: pass the turn on.
                    self._pass()
                raise
        self._busy = True
        loop.call_soon(self._begin_gap)

    def _begin_gap(self) -> None:
        """In the turn behind the piece of work, which is the first one of the gap."""
        self._gap_until = self._now() + self._gap_s_max
        self._rest(GAP_TURNS)

    def _rest(self, turns: int) -> None:
        if turns and self._now() < self._gap_until:
            asyncio.get_running_loop().call_soon(self._rest, turns - 1)
        else:
            self._pass()

    def _pass(self) -> None:
        """Give the turn to the next caller; `_busy` becomes False if there is none."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._busy = False


class TurnShares:
    """Lets large sends pass one by one while single sends are expected."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._expected_until = 0.0
        self._stile = Turnstile(now)

    def note_single_send(self) -> None:
        """A single send has arrived."""
        self._expected_until = self._now() + BESIDE_SECONDS

    async def wait_for_turn(self) -> None:
        """Wait for a turn. The caller must do its large send before it waits again."""
        if self._stile.crowded or self._now() <= self._expected_until:
            await self._stile.pass_one()


# ------------------------------------------------------------------------------ background work

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
