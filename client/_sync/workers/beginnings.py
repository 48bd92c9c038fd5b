"""What a worker does at each start before it needs it: it puts the schedules of its tasks.

As for consumers, a refusal ends the start, and a broker that is away ends nothing: the rest is done
as soon as the broker answers.

Made from client/_async/workers/beginnings.py by `make twins`: change that one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from delaylog.client._sync.concurrency import Event, Task, cancel, sleep, spawn
from delaylog.client.workers.consumer import FETCHING
from delaylog.client.workers.failures import is_refusal, wait_after

logger = logging.getLogger(__name__)


class _Act(NamedTuple):
    what: str
    call: Callable[[], object]


class Beginnings:
    """Calls, each with what it does, in the words of the log."""

    def __init__(self) -> None:
        self._acts: list[_Act] = []
        self._over = Event()
        self._retrying: list[Task[None]] = []
        self.error: Exception | None = None
        """With what a call was refused after the start."""

    def add(self, what: str, act: Callable[[], object]) -> None:
        """Have each start make a call."""
        self._acts.append(_Act(what, act))

    def begin(self, end: Event) -> None:
        """Make all calls, later ones in the background; a refusal then sets `end`.

        Raises the first refusal.
        """
        self._over, self.error = Event(), None
        left = list(self._acts)
        failure = self._do(left)
        if failure is None:
            return
        if is_refusal(failure):
            raise failure
        logger.warning("%s: %s; the worker tries again", left[0].what, failure)
        again = partial(self._again, left, failure, self._over, end)
        self._retrying = [spawn(again, "delaylog schedules")]

    def stop(self) -> None:
        """Try no more."""
        self._over.set()
        cancel(self._retrying)
        self._retrying = []

    def _do(self, left: list[_Act]) -> Exception | None:
        """Make the calls, and take each that is done off the list; the first failure ends it."""
        while left:
            try:
                left[0].call()
            except Exception as error:
                return error
            del left[0]
        return None

    def _again(
        self,
        left: list[_Act],
        failure: Exception | None,
        over: Event,
        end: Event,
    ) -> None:
        failures = 1
        while failure is not None:
            sleep(wait_after(FETCHING, failures, random.random(), failure))
            if over.is_set():
                return
            failure = self._do(left)
            failures += 1
            if failure is not None and is_refusal(failure):
                logger.error("%s: %s", left[0].what, failure)
                self.error = failure
                end.set()
                return
        logger.info("the schedules of tasks are put, after %d failed tries", failures - 1)
