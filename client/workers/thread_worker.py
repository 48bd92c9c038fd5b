"""ThreadWorker: consumers in threads, from start to a graceful stop.

The one rule: `stop` returns, whatever handlers do; one that never ends goes on as a daemon thread,
and what it decides settles nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from delaylog.client.hooks import NO_HOOKS, Hooks
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.declaring import Declaring
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.ports import Port
from delaylog.client.workers.signals import Signals
from delaylog.client.workers.thread_shift import FLUSH_S, ThreadShift


class ThreadWorker(Declaring):
    """`ports` gives the shards of a consumer; `Client` has a worker of its own inside."""

    def __init__(
        self, ports: Callable[[Consumer], Sequence[Port]], *, hooks: Hooks | None = None
    ) -> None:
        self._ports = ports
        self._hooks = hooks or NO_HOOKS
        self._consumers: list[Consumer] = []
        self._shifts: list[tuple[Consumer, ThreadShift]] = []
        self._end = threading.Event()

    def _declare(self, consumer: Consumer) -> None:
        if consumer.is_async:
            raise TypeError(
                f"the handler of {consumer.name} is a coroutine function: write `def`, or use "
                "AsyncClient, whose handlers run in the event loop"
            )
        if self._shifts:
            raise RuntimeError("declare consumers before the worker is started")
        self._consumers.append(consumer)

    def start(self) -> None:
        """Begin to fetch and to handle; returns at once. RuntimeError without any consumer."""
        if not self._consumers:
            raise RuntimeError("there is nothing to run: declare a handler with @….consumer(topic)")
        if self._shifts:
            raise RuntimeError("the worker is running already")
        self._end.clear()
        gates: dict[tuple[str, str | None], tuple[KeyGate, threading.RLock]] = {}
        for consumer in self._consumers:
            gate, lock = gates.setdefault(
                (consumer.topic, consumer.group), (KeyGate(), threading.RLock())
            )
            shift = ThreadShift(
                consumer,
                self._ports(consumer),
                gate=gate,
                lock=lock,
                hooks=self._hooks,
                end=self._end,
            )
            self._shifts.append((consumer, shift))
        for _, shift in self._shifts:
            shift.start()

    def stop(self, *, grace_s: float | None = None) -> None:
        """Fetch no more, give back what is not begun, and wait for handlers.

        For `grace_s` (None: each consumer's own); then their messages are given back. A SystemExit
        or KeyboardInterrupt that a handler raised is raised here, and the refusal of a consumer
        that the broker has never let begin. Fine to call when nothing runs.
        """
        shifts, self._shifts = self._shifts, []
        stops = [
            threading.Thread(
                target=shift.stop, args=(consumer.grace_s if grace_s is None else grace_s,)
            )
            for consumer, shift in shifts
        ]
        for thread in stops:
            thread.start()
        for thread in stops:
            thread.join()
        for _, shift in shifts:
            if shift.ended_by is not None:
                raise shift.ended_by
        for consumer, shift in shifts:
            if (refused := shift.beginning.error) is not None:
                refused.add_note(f"the consumer of {consumer.name} was refused from the start")
                raise refused

    def run(self) -> None:
        """Start, and stop on SIGTERM or SIGINT; a second signal ends the process at once.

        A consumer that the broker refuses from the start ends it too, by that error. Only in the
        main thread.
        """
        longest_s = max((each.grace_s for each in self._consumers), default=0.0)
        with Signals(self._end.set, limit_s=longest_s + 4 * FLUSH_S):
            self.start()
            try:
                self._end.wait()
            finally:
                self.stop()
