"""An event loop with virtual time: it runs what is due, and else moves its clock to the next timer.

There are no sockets and no threads, so one seed gives one order of callbacks. Handles belong to the
process in whose context they were made. A process may be frozen, so that its handles wait, or dead,
so that they are dropped: that is a kill between two steps. `Deadlock` is raised when nothing can
happen any more.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final


class Deadlock(Exception):
    """Nothing is ready and no timer is set: what the caller waits for never comes."""


class Endless(Exception):
    """More steps than any run needs: something runs round and round."""


class Process:
    """What dies, and is frozen, as a whole: all handles and tasks made in its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.held: list[Handle] = []
        """Handles whose turn came while it was frozen."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.on_death: Callable[[], None] = lambda: None
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def die(self) -> None:
        """From now on nothing of it runs, except for the rest of the present callback."""
        if not self.is_dead:
            self.is_dead = True
            self.held.clear()
            self.on_death()

    def bury(self) -> None:
        """End its coroutines, whose `finally` blocks find a dead world. Call it from outside."""
        assert self.is_dead, "only the dead are buried"
        tasks, self.tasks = self.tasks, []
        with warnings.catch_warnings():
            # A coroutine that never began warns of it.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(BaseException):
                        self.context.run(task.get_coro().close)  # type: ignore[union-attr]


PROCESS: Final[ContextVar[Process | None]] = ContextVar("process", default=None)


class SimLoop(asyncio.BaseEventLoop):
    """One run's loop. `now` may be moved ahead by whoever consumes time inside a callback."""

    def __init__(self, steps_max: int) -> None:
        super().__init__()
        self._selector = self
        self.now = 0.0
        self.steps = 0
        """Callbacks so far."""
        self.step_s = 0.0
        """What a callback of a process takes."""
        self.before_step: Callable[[Process], None] = lambda _: None
        """Called before each step of a process; it may kill it."""
        self._steps_max = steps_max
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._order = count()
        self._ready: deque[Handle]
        self.servers: dict[Process | None, Callable[[], asyncio.Protocol]] = {}
        """Who listens: the maker of protocols of each process."""
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self.now

    # ------------------------------------------------------------------ handles

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """As usual; a call for a dead process is dropped."""
        handle = Handle(callback, args, self, copy_context() if context is None else context)
        process = handle._context.get(PROCESS)
        if process is None or not process.is_dead:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """As usual; of two timers of one moment the one that was set first fires first."""
        context = copy_context() if context is None else context
        timer = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """As usual."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            tasks = process.tasks
            tasks.append(task)
            if len(tasks) > 256:
                process.tasks = [one for one in tasks if not one.done()]
        return task

    # ------------------------------------------------------------------ steps

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock(f"nothing can happen after {self.now:.3f} s")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        for _ in range(len(ready)):
            self._step(ready.popleft())

    def _step(self, handle: Handle) -> None:
        if handle.cancelled():
            return
        process = handle._context.get(PROCESS)
        if process is not None:
            if process.is_frozen:
                process.held.append(handle)
                return
            if not process.is_dead:
                self.before_step(process)
            if process.is_dead:
                return
            self.now += self.step_s
        self.steps += 1
        if self.steps > self._steps_max:
            raise Endless(f"{self.steps} steps, and no end")
        handle._run()

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on: everything that waited is due at once."""
        process.is_frozen = False
        held, process.held = process.held, []
        self._ready.extend(held)

    # ------------------------------------------------------------------ what there is not

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Only by a worker of the machine: a thread would end the determinism."""
        assert executor is not None, f"{func} wants a thread of the loop"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any
    ) -> _Listening:
        """Listen, for clients of this loop."""
        process = PROCESS.get()
        self.servers[process] = protocol_factory
        return _Listening(self, process)


class _Socket:
    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 8711)


class _Listening:
    def __init__(self, loop: SimLoop, process: Process | None) -> None:
        self._loop, self._process = loop, process
        self.sockets = [_Socket()]

    def close(self) -> None:
        self._loop.servers.pop(self._process, None)

    async def wait_closed(self) -> None:
        """At once."""
