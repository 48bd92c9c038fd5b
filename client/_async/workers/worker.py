"""AsyncWorker: consumers at work, from start to a graceful stop.

The one rule: `stop` returns, whatever handlers do, unless they block its event loop; `run`,
which watches the signals, ends the process even then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from delaylog.client._async.concurrency import Event, from_any_thread, together
from delaylog.client._async.workers.shift import STOP_S, AsyncShift, SharedGate, check_handler
from delaylog.client.hooks import NO_HOOKS, Hooks
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.declaring import Declaring
from delaylog.client.workers.signals import Signals

if TYPE_CHECKING:
    from delaylog.client._async.workers.ports import AsyncPort


class AsyncWorker(Declaring):
    """`ports` gives the shards of a consumer; `AsyncClient` is a worker itself."""

    def __init__(
        self, ports: Callable[[Consumer], Sequence[AsyncPort]], *, hooks: Hooks | None = None
    ) -> None:
        self._ports = ports
        self._hooks = hooks or NO_HOOKS
        self._consumers: list[Consumer] = []
        self._shifts: list[tuple[Consumer, AsyncShift]] = []
        self._end = Event()

    def _declare(self, consumer: Consumer) -> None:
        check_handler(consumer)
        if self._shifts:
            raise RuntimeError("declare consumers before the worker is started")
        self._consumers.append(consumer)

    async def start(self) -> None:
        """Begin to handle messages, for a program that watches signals itself; see `stop`.

        RuntimeError where no handler was declared, or it runs already.
        """
        if not self._consumers:
            raise RuntimeError("there is nothing to run: declare a handler with @….consumer(topic)")
        if self._shifts:
            raise RuntimeError("the worker is running already")
        # A new one each time: the client may live longer than the loop of one.
        self._end = Event()
        gates: dict[tuple[str, str | None], SharedGate] = {}
        for consumer in self._consumers:
            shift = AsyncShift(
                consumer,
                self._ports(consumer),
                gate=gates.setdefault((consumer.topic, consumer.group), SharedGate()),
                hooks=self._hooks,
                end=self._end,
            )
            self._shifts.append((consumer, shift))
        for _, shift in self._shifts:
            shift.start()

    async def stop(self, *, grace_s: float | None = None) -> None:
        """Fetch no more, give back what is not begun, wait for handlers for a while.

        For `grace_s`, None: each consumer's own; then handlers are given up (tasks are cancelled,
        and what threads decide counts no more) and their messages given back. A SystemExit or
        KeyboardInterrupt that a handler raised is raised here, and the refusal of a consumer that
        never got to begin. Fine to call when nothing runs. `close` does it too.
        """
        shifts, self._shifts = self._shifts, []
        await together(
            partial(shift.stop, consumer.grace_s if grace_s is None else grace_s)
            for consumer, shift in shifts
        )
        for _, shift in shifts:
            if shift.ended_by is not None:
                raise shift.ended_by
        for consumer, shift in shifts:
            if (refused := shift.beginning.error) is not None:
                refused.add_note(f"the consumer of {consumer.name} was refused from the start")
                raise refused

    async def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then `stop`; a second signal ends the process.

        It ends by Unauthorized, Forbidden, NotFound (no such group) or another refusal where that
        is all that a consumer got from the start; once it was answered, refusals are waited out.
        RuntimeError outside the main thread. Handlers that block an event loop cannot be stopped:
        the process is left when their grace and some seconds are over.
        """
        longest_s = max((each.grace_s for each in self._consumers), default=0.0)
        with Signals(from_any_thread(self._ask_to_end), limit_s=longest_s + STOP_S):
            await self.start()
            try:
                await self._end.wait()
            finally:
                await self.stop()

    def _ask_to_end(self) -> None:
        self._end.set()
