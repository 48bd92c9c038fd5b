"""The node of an embedded broker: a server's node on a thread with an event loop of its own.

Program threads and event loops hand their calls over to that thread and wait for the answer. With a
wall clock the node goes on between calls, as in a server. With a manual clock its workers run at
once (`InlineMachine`), and a call is answered when nothing is due any more: so a test finds
everything done that its calls and its moves of the clock have caused.

The loop waits for timers and for other threads, not for sockets. Its thread is woken by a lock,
which takes a third of the time of a pipe. Its time can be moved ahead, so that timers follow a
clock that the program moves. The threads of the machine work until the process has ended: the pools
of `concurrent.futures` and of asyncio refuse work once the main thread has ended, but the other
threads of a program and its `atexit` handlers still call the broker then, and close it.

No folder is opened twice in a process, and a forked child uses none: it has the parent's memory but
none of its threads, and two processes that write one folder would damage it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from delaylog.broker.calls.answers import Problem, document_of, problem_of
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.embedded.clocks import ManualClock, WallClock
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.clock import Clock
from delaylog.broker.host.log_commits import finish
from delaylog.broker.host.machine import InlineMachine, Machine, RealMachine
from delaylog.broker.host.system.folder_lock import retention_suspended, unlock_folder
from delaylog.client.errors import ApiError, ClientClosed, api_error
from delaylog.storage.errors import DISTRUSTED

# -------------------------------------------------------------------- closed and failed brokers


class ClosedError(ClientClosed):
    """The broker was closed, or has failed: open its folder again."""


def why_closed(failure: BaseException | None, *, forked: bool) -> ClosedError:
    """The error of calls on a broker that has failed by `failure`, or was closed."""
    if forked:
        return ClosedError(
            "this broker belongs to the process that opened it, and this process was forked from "
            "that one: use it there, or run `delaylog serve` on the folder and a Client in both"
        )
    if failure is None:
        return ClosedError("this broker is closed: open its folder again")
    error = ClosedError(f"this broker has failed: {failure}; check the disk")
    error.__cause__ = failure
    return error


# -------------------------------------------------------------------- the nodes of this process


_nodes: weakref.WeakSet[NodeThread] = weakref.WeakSet()


def register(node: NodeThread) -> None:
    """Register a node that has opened a folder."""
    _nodes.add(node)


def is_open_here(folder: str) -> bool:
    """Whether a broker of this process uses the folder, until its close has ended."""
    return any(_same(node.engine.folder, folder) for node in list(_nodes) if not node.ended)


def _same(one: str, other: str) -> bool:
    """Whether two paths name the same folder; a removed folder is not the same as any other."""
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _in_forked_child() -> None:
    for node in list(_nodes):
        node.begin_forked()


os.register_at_fork(after_in_child=_in_forked_child)


# -------------------------------------------------------------------------------------- threads

T = TypeVar("T")
Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Worker(Executor):
    """One daemon thread. It is started at once: later the process may start no more threads."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._shut = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call after the earlier ones. Raises RuntimeError after `shutdown`."""
        if self._shut:
            raise RuntimeError("this thread was shut down")
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread after the calls that were submitted."""
        self._shut = True
        self._jobs.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            # What it refers to is freed now, and not with the next job.
            del job


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call on a thread of its own. After a cancel a call that runs goes on."""
    worker = Worker("delaylog-call")
    try:
        return await asyncio.wrap_future(worker.submit(call))
    finally:
        worker.shutdown(wait=False)


class EmbeddedMachine(RealMachine):
    """The machine of this process, without pools."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread."""
        return await in_thread(call)

    def worker(self, name: str) -> Executor:
        """A thread with this name that runs calls one at a time."""
        return Worker(name)


EMBEDDED: Final[Machine] = EmbeddedMachine()


# ------------------------------------------------------------------------------- the event loop


class ThreadLoop(asyncio.BaseEventLoop):
    """An event loop without a selector."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._woken = threading.Lock()
        self._woken.acquire()
        self.ahead_s = 0.0
        """How far its time is ahead of the monotonic clock."""
        self.on_idle: Callable[[], bool] = lambda: False
        """Called when nothing is ready and no timer is due; returns whether to look again."""

    def time(self) -> float:
        """Seconds of the monotonic clock, plus what the program has moved."""
        return monotonic() + self.ahead_s

    def select(self, timeout: float | None) -> Sequence[Any]:
        """Wait until another thread calls, for at most `timeout` seconds (None = for ever)."""
        if (timeout is None or timeout > 0) and not self.on_idle():
            self._woken.acquire(timeout=-1 if timeout is None else timeout)
        return ()

    def _process_events(self, events: Sequence[Any]) -> None:
        """There are no events of sockets."""

    def _write_to_self(self) -> None:
        # Several calls may wake it before it wakes.
        with suppress(RuntimeError):
            self._woken.release()


# ------------------------------------------------------------------------------------- the node

Steps: TypeAlias = Coroutine[Any, Any, T]
"""A call, which runs on the node's thread."""

log: Final = logging.getLogger("delaylog.embedded")


class EmbeddedNode(ServingNode):
    """A server's node without callers from elsewhere."""

    @property
    def manual(self) -> bool:
        """Whether a program moves its clock."""
        return isinstance(self.clock, ManualClock)

    def start(self) -> None:
        """Start the timers and the background work; there are no principals to look after."""
        self.files_pinned = self._pinned
        self.start_work()

    def _pinned(self) -> bool:
        # As in a server, space for messages has priority over a backup that holds files.
        enough = self.free_bytes() >= 2 * self.engine.limits.disk_reserve_bytes
        return enough and retention_suspended(self.engine.folder)

    def log_committed(self) -> None:
        """As on a server; what only a server's monitor reads is dropped."""
        super().log_committed()
        self.engine.state.take_activities()


class Asked:
    """One call of the program, until it is answered."""

    __slots__ = ("answer", "error", "give_back", "soon", "steps", "task", "tell", "told")

    def __init__(
        self,
        steps: Steps[Any],
        tell: Callable[[], object],
        give_back: Callable[[Any], Steps[Any]] | None,
        *,
        soon: bool,
    ) -> None:
        self.steps, self.tell, self.give_back, self.soon = steps, tell, give_back, soon
        self.answer: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.told = False

    def result(self) -> Any:
        """The answer. Raises the error of the call."""
        if self.error is not None:
            raise self.error
        return self.answer


class NodeThread:
    """Runs a node, and carries calls to it. Any thread and any event loop may call.

    It is open, then perhaps failed (calls are refused, and nothing is written any more), then
    closed (`close` was called), and at last ended: nothing uses the folder any more. What is after
    a failure or a close runs on the thread itself, so it goes on if who waits for it is
    interrupted.
    """

    def __init__(self, engine: Engine, clock: Clock, lock: int, *, fsync: str) -> None:
        """Start the thread and the node. Raises the error of the start.

        `lock` = the descriptor that holds the folder's lock; the thread closes it at its end.
        """
        self.engine, self.clock = engine, clock
        self.closed = self.ended = self.forked = False
        self._lock: int | None = lock
        self._failure: BaseException | None = None
        self._failure_told = False
        self._error: BaseException | None = None
        """What the end has met, until `close` has raised it."""
        self._end_seen = threading.Event()
        self._ending: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._manual = isinstance(clock, ManualClock)
        self._began_ms = clock.now_ms()
        self._asked: set[Asked] = set()
        """Calls under way."""
        self._answered: list[Asked] = []
        """Calls whose callers are told when nothing is due any more."""
        self._held: list[Asked] = []
        """Calls that begin when those have been told."""
        self._context = contextvars.Context()
        """An empty one: otherwise timers and background work would keep that of a caller."""
        self._handing_over = threading.RLock()
        """No call is handed over once the end of the thread was. A signal handler or a finaliser
        may call while its own thread has it."""
        self._node: EmbeddedNode | None = None
        self._loop = ThreadLoop()
        self._loop.set_exception_handler(self._bug)
        self._thread = threading.Thread(target=self._run, name="delaylog-node", daemon=True)
        register(self)
        try:
            self._thread.start()
        except RuntimeError:
            # The process may have no more threads.
            engine.close()
            self._let_go()
            raise
        try:
            self.run(self._start(fsync), soon=True)
        except BaseException as error:
            self._failure = self._failure or error
            with suppress(Exception):
                self.close()
            # The cause, and not how a call would tell it.
            raise self._failure from None

    async def _start(self, fsync: str) -> None:
        engine, clock = self.engine, self.clock
        if self._manual:
            # Count from now: the first checkpoint is due after a day of this clock.
            engine.upkeep.checkpoint_ms = clock.now_ms()
        machine = InlineMachine() if self._manual else EMBEDDED
        self._node = EmbeddedNode(engine, clock, self._fail, fsync=fsync, machine=machine)
        self._node.start()
        if isinstance(clock, WallClock):
            clock.on_jump = self._clock_jumped
        if self._manual:
            self._loop.on_idle = self._idle

    @property
    def node(self) -> EmbeddedNode:
        """The node, once it has started."""
        assert self._node is not None, "the start has failed"
        return self._node

    def _run(self) -> None:
        while self._ending is None or not self._ending.done():
            try:
                self._loop.run_forever()
            except BaseException as error:
                # Such as SystemExit. As after any other bug, calls are refused and `close` closes.
                with suppress(BaseException):
                    self._fail(error)
        self._let_go()

    def _let_go(self) -> None:
        with self._handing_over:
            self.closed = True
            self._loop.close()
        self._release_lock(unlock_folder)
        self.ended = True
        self._end_seen.set()

    def _release_lock(self, release: Callable[[int], None]) -> None:
        # In this order, since the process may be forked in between.
        lock, self._lock = self._lock, None
        if lock is not None:
            release(lock)

    # ------------------------------------------------------------------ calls

    def run(
        self,
        steps: Steps[T],
        *,
        soon: bool = False,
        give_back: Callable[[T], Steps[Any]] | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Run a call and block this thread until its answer. Raises ApiError, ClosedError.

        `soon` = the call does not wait for the disk, nor for what an earlier one has caused. After
        the timeout the call goes on, and TimeoutError is raised. A call that is interrupted ends
        without an effect, or goes on; `give_back` undoes one that has leased messages.
        """
        told = threading.Lock()
        told.acquire()
        asked = Asked(steps, told.release, give_back, soon=soon)
        try:
            self._hand_over(asked)
            answered = told.acquire(timeout=-1 if timeout_s is None else timeout_s)
        except BaseException:
            # Raised by a signal handler, whatever its type.
            self._call_soon(self._abandoned, asked)
            raise
        if not answered:
            raise TimeoutError(f"no answer within {timeout_s} s")
        answer: T = asked.result()
        return answer

    async def wait(
        self,
        steps: Steps[T],
        *,
        soon: bool = False,
        give_back: Callable[[T], Steps[Any]] | None = None,
    ) -> T:
        """The same for an event loop, which goes on meanwhile."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        tell = partial(loop.call_soon_threadsafe, finish, told)
        asked = Asked(steps, tell, give_back, soon=soon)
        self._hand_over(asked)
        try:
            await told
        except BaseException:
            self._call_soon(self._abandoned, asked)
            raise
        answer: T = asked.result()
        return answer

    def check_open(self) -> None:
        """Raise ClosedError if the broker is closed or has failed."""
        if self.closed or self._failure is not None:
            raise self._why_closed()

    @property
    def _on_own_thread(self) -> bool:
        # Not by the thread's number, which another thread gets once this one has ended.
        return threading.current_thread() is self._thread

    def check_caller(self) -> None:
        """Raise RuntimeError on the node's own thread, which would wait for itself."""
        if self._on_own_thread and not self.forked:
            raise RuntimeError(
                "a logging handler or a finaliser has called the broker on the broker's own "
                "thread: let another thread make this call"
            )

    def _why_closed(self) -> ClosedError:
        self._failure_told = self._failure is not None
        return why_closed(self._failure, forked=self.forked)

    def is_safe(self, position: int) -> bool:
        """Whether the log is safe up to `position`, as the fsync option defines it."""
        return self.node.log_commits.position() >= position

    def _hand_over(self, asked: Asked) -> None:
        try:
            self.check_open()
            self.check_caller()
            with self._handing_over:
                self.check_open()
                self._loop.call_soon_threadsafe(self._begin, asked, context=self._context)
        except (ClosedError, RuntimeError):
            asked.steps.close()
            raise

    def _call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the thread make a call, unless it has ended."""
        if not self.closed:
            with self._handing_over:
                if not self.closed:
                    self._loop.call_soon_threadsafe(call, *arguments, context=self._context)

    # ------------------------------------------------------------------ on the node's thread

    def _begin(self, asked: Asked) -> None:
        self._asked.add(asked)
        if asked.soon and self._answered and not asked.told:
            # Otherwise senders with `wait=False` keep the loop busy, and the callers that wait get
            # no answer.
            self._held.append(asked)
            return
        asked.task = self._loop.create_task(self._carry_out(asked))
        if self._failure is not None:
            self._refuse(asked)

    async def _carry_out(self, asked: Asked) -> None:
        try:
            if self._manual and not asked.soon:
                # No other thread commits what nobody has waited for.
                await self.node.durable(self.node.engine.state.position)
            asked.answer = await asked.steps
        except Exception as error:
            known = self._translated(error)
            if not asked.told:
                asked.error = known
        except asyncio.CancelledError:
            if asked.told:
                raise
            # The program did not cancel the call.
            asked.error = ClosedError(
                "the broker has ended this call, which may have had an effect"
            )
        self._ended(asked)
        if self._manual and not asked.soon:
            self._answered.append(asked)
        else:
            self._tell(asked)

    def _ended(self, asked: Asked) -> None:
        asked.steps.close()
        self._asked.discard(asked)

    def _tell(self, asked: Asked) -> None:
        if not asked.told:
            asked.told = True
            try:
                asked.tell()
            except RuntimeError:
                log.debug("the event loop of a caller was closed before the answer")
                self._abandoned(asked)

    def _abandoned(self, asked: Asked) -> None:
        """The caller waits no more: end the call, or give back what it has leased."""
        asked.told = True
        if asked.task is None:
            # It has not begun, and will not.
            self._ended(asked)
        elif asked.answer is not None:
            give_back, asked.give_back = asked.give_back, None
            if give_back is not None:
                back = Asked(give_back(asked.answer), lambda: None, None, soon=True)
                back.told = True
                self._begin(back)
        elif not asked.task.done():
            asked.task.cancel()
            asked.task.add_done_callback(lambda _: self._ended(asked))

    def _refuse(self, asked: Asked) -> None:
        """End a call, because the broker has failed or is being closed."""
        if not asked.told:
            asked.error = self._why_closed()
            self._tell(asked)
        self._abandoned(asked)

    def _refuse_all(self) -> None:
        answered, self._answered = self._answered, []
        for asked in [*self._asked, *answered]:
            self._refuse(asked)

    def _translated(self, error: Exception) -> Exception:
        """The client's error for one of the engine or of storage; others stay the same."""
        problem: EngineError | None
        if isinstance(error, DISTRUSTED):
            # No call may be answered from this disk any more.
            self._fail(error)
            problem = Problem("not_ready", f"the broker stops: {error}")
        else:
            problem = problem_of(error)
        return error if problem is None else refusal(problem)

    def _fail(self, error: BaseException) -> None:
        """Refuse all calls: the disk or the state in memory cannot be trusted any more."""
        if self._failure is None:
            self._failure = error
            self._refuse_all()
            if self._stopping is not None:
                # The last writes would wait for this disk for ever.
                self._stopping.cancel()
            # Last, because a logging handler of the program may do anything.
            log.critical("an error stops the embedded broker", exc_info=error)

    def _bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception):
            self._fail(error)
        else:
            loop.default_exception_handler(context)

    # ------------------------------------------------------------------ the clock

    def next_stop_ms(self) -> int | None:
        """The next expiry, at which a manual clock has to stop: its time is recorded."""
        return self.run(self._next_stop())

    async def _next_stop(self) -> int | None:
        state = self.node.engine.state
        ends = (
            state.leases.next_expiry_ms(),
            state.claims.next_expiry_ms(),
            state.keyspace.next_expiry_ms(),
        )
        return min((end for end in ends if end is not None), default=None)

    def clock_moved(self) -> None:
        """Do everything that is due after a move of a manual clock."""
        # As behind every call.
        self.run(_nothing())

    def _idle(self) -> bool:
        """Under a manual clock: go on while something is due, then tell the callers."""
        try:
            if self._failure is None:
                if self._released_due():
                    return True
                if self._works:
                    # Background work waits, for example for a commit: its timer wakes the loop.
                    return False
                # Only now, so that messages come before the waits for them end.
                if self._moved_timers():
                    return True
        except Exception as error:
            self._fail(error)
        answered, self._answered = self._answered, []
        for asked in answered:
            self._tell(asked)
        held, self._held = self._held, []
        for asked in held:
            if not asked.told:
                self._begin(asked)
        return bool(answered)

    @property
    def _works(self) -> bool:
        """Whether background work goes on that what is due may need."""
        node = self.node
        return node.background.busy and node.may_release and not node.disk_full

    def _released_due(self) -> bool:
        """Release what is due by the clock; returns whether there was anything."""
        node = self.node
        wake_ms = node.engine.next_wake_ms() if node.may_release else None
        if wake_ms is None or wake_ms > self.clock.now_ms():
            return False
        node.run_due(unpaced=True)
        return True

    def _moved_timers(self) -> bool:
        """Move the loop's timers as far as the clock was moved; returns whether it was."""
        ahead_s = (self.clock.now_ms() - self._began_ms) / 1000
        if ahead_s <= self._loop.ahead_s:
            return False
        self._loop.ahead_s = ahead_s
        return True

    def _clock_jumped(self, jump_ms: int) -> None:
        if self._on_own_thread:
            self.node.clock_jumped(jump_ms)
        else:
            self._call_soon(self.node.clock_jumped, jump_ms)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Write everything appended to disk, take a last checkpoint, and close the engine.

        After a failure the engine is closed without these: its log has everything that was
        answered. Raises, once, the error of the end, or a failure that no call has told. A caller
        that is interrupted may call again: it waits for the same end. In a forked child this does
        nothing.
        """
        if self.forked:
            return
        self.check_caller()
        with self._handing_over:
            self.closed = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._begin_to_end, context=self._context)
        self._end_seen.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
            self._ending.add_done_callback(lambda _: self._loop.stop())

    async def _end(self) -> None:
        try:
            self._refuse_all()
            # Give-backs of refused receives are among these tasks.
            tasks = [asked.task for asked in self._asked if asked.task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._node is None:
                self.engine.close()
            else:
                stop = self._node.stop(finish=self._failure is None)
                self._stopping = self._loop.create_task(stop)
                await self._stopping
        except BaseException as error:
            self._error = error
        if self._failure is not None and not self._failure_told:
            # No call has raised the failure yet, and it has cancelled the last writes.
            self._error = self._failure

    def begin_forked(self) -> None:
        """Mark the node ended in a forked child: only the parent may write the folder."""
        self.forked = self.closed = self.ended = True
        # Otherwise the folder of a killed parent would stay locked as long as this child lives.
        self._release_lock(os.close)


async def _nothing() -> None:
    """A call that is answered when nothing is due any more."""


def refusal(problem: EngineError) -> ApiError:
    """The client's exception for a refusal."""
    document = document_of(problem)
    wait_s = document.get("retry_after_s")
    return api_error(document["status"], document, None if wait_s is None else float(wait_s))
