"""Carrying: carries out calls, as the base class of the transport.

It carries out the plan of `exchange` and makes no decisions itself. The transport makes each
exchange, and reports a failure as NotReached or AnswerLost.

Made from client/_async/carrier.py by `make twins`: change that one.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TypeVar

from delaylog.client._sync.concurrency import sleep
from delaylog.client.calls.call import Call
from delaylog.client.errors import ClientClosed
from delaylog.client.wire.checks import check_whole
from delaylog.client.wire.exchange import (
    TIMEOUT_S,
    Ask,
    LeaderWatch,
    OnRepeat,
    Outcome,
    Pause,
    Step,
    Times,
    exchange,
)
from delaylog.client.wire.leader_route import LeaderRoute

T = TypeVar("T")
R = TypeVar("R")


class Carrying(ABC):
    """The calls to one broker or cluster."""

    def __init__(
        self,
        route: LeaderRoute,
        *,
        timeout_s: float = TIMEOUT_S,
        connections_max: int = 100,
        failover_s: float | None = None,
        reconnect_s: float | None = None,
    ) -> None:
        """`connections_max`: of tasks at all; of threads, how many idle ones are kept."""
        check_whole("connections_max", connections_max, 1)
        self.route = route
        self.times = Times(timeout_s, failover_s, reconnect_s)
        self._connections_max = connections_max
        self._leader_watch = LeaderWatch(route, time.monotonic)
        self._process_id = os.getpid()
        self._closed = False
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Begin without connections."""

    @abstractmethod
    def _once(self, ask: Ask) -> Outcome:
        """Make one exchange with one node."""

    def check_open(self) -> None:
        """Raise ClientClosed if it is closed."""
        if self._closed:
            raise ClientClosed

    def carry(
        self,
        call: Call[T],
        *,
        doubts: list[Exception] | None = None,
        on_repeat: OnRepeat | None = None,
    ) -> T:
        """Carry out a call and return its value. Raises NotReached, AnswerLost or ApiError.

        `doubts` collects the failures after which the call was retried although it may have been
        carried out; `on_repeat` is called with each failure after which it is retried.
        """
        plan = exchange(call, self.route, time.monotonic, self.times, doubts, on_repeat)
        return call.decoded(self._carried(plan))

    def _carried(self, plan: Generator[Step, Outcome, R]) -> R:
        """Carry out the steps of a plan; returns what it returns."""
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    sleep(step.seconds)
                    step = plan.send(None)
                else:
                    step = plan.send(self._once(step))
        except StopIteration as done:
            result: R = done.value
        return result
