"""AsyncWorker: consumers in an event loop, from start to a graceful stop.

The one rule: `stop` returns, whatever handlers do, as long as the loop itself turns; `run`, which
watches the signals, ends the process even then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from delaylog.client.hooks import NO_HOOKS, Hooks
from delaylog.client.workers.async_shift import CANCEL_S, FLUSH_S, AsyncShift
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.declaring import Declaring
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.ports import AsyncPort
from delaylog.client.workers.signals import Signals


class AsyncWorker(Declaring):
    """`ports` gives the shards of a consumer; `AsyncClient` has a worker of its own inside."""

    def __init__(
        self, ports: Callable[[Consumer], Sequence[AsyncPort]], *, hooks: Hooks | None = None
    ) -> None:
        self._ports = ports
        self._hooks = hooks or NO_HOOKS
        self._consumers: list[Consumer] = []
        self._shifts: list[tuple[Consumer, AsyncShift]] = []
        self._end = asyncio.Event()

    def _declare(self, consumer: Consumer) -> None:
        if not consumer.is_async:
            raise TypeError(
                f"the handler of {consumer.name} is no coroutine function: write `async def`, or "
                "use Client, whose handlers run in threads"
            )
        if self._shifts:
            raise RuntimeError("declare consumers before the worker is started")
        self._consumers.append(consumer)

    async def start(self) -> None:
        """Begin to fetch and to handle; returns at once. RuntimeError without any consumer."""
        if not self._consumers:
            raise RuntimeError("there is nothing to run: declare a handler with @….consumer(topic)")
        if self._shifts:
            raise RuntimeError("the worker is running already")
        # A loop of its own each time: the client may live longer than one.
        self._end = asyncio.Event()
        gates: dict[tuple[str, str | None], KeyGate] = {}
        for consumer in self._consumers:
            gate = gates.setdefault((consumer.topic, consumer.group), KeyGate())
            shift = AsyncShift(consumer, self._ports(consumer), gate=gate, hooks=self._hooks)
            shift.on_end = self._end
            self._shifts.append((consumer, shift))
        for _, shift in self._shifts:
            shift.start()

    async def stop(self, *, grace_s: float | None = None) -> None:
        """Fetch no more, give back what is not begun, and wait for handlers.

        For `grace_s` (None: each consumer's own); then they are cancelled and their messages given
        back. A SystemExit or KeyboardInterrupt that a handler raised is raised here, and the
        refusal of a consumer that never got to begin. Fine to call when nothing runs.
        """
        shifts, self._shifts = self._shifts, []
        await asyncio.gather(
            *(
                shift.stop(consumer.grace_s if grace_s is None else grace_s)
                for consumer, shift in shifts
            )
        )
        for _, shift in shifts:
            if shift.ended_by is not None:
                raise shift.ended_by
        for consumer, shift in shifts:
            if (refused := shift.beginning.error) is not None:
                refused.add_note(f"the consumer of {consumer.name} was refused from the start")
                raise refused

    async def run(self) -> None:
        """Start, and stop on SIGTERM or SIGINT; a second signal ends the process at once.

        A consumer that the broker refuses from the start ends it too, by that error. Only in the
        main thread. When handlers block the loop, so that stopping gets nowhere, the
        process is left when their grace and some seconds are over.
        """
        loop = asyncio.get_running_loop()
        longest_s = max((each.grace_s for each in self._consumers), default=0.0)
        limit_s = longest_s + FLUSH_S + 4 * CANCEL_S

        def ask() -> None:
            loop.call_soon_threadsafe(end)

        def end() -> None:
            self._end.set()

        with Signals(ask, limit_s=limit_s):
            await self.start()
            try:
                await self._end.wait()
            finally:
                await self.stop()
