"""Clocks of an embedded broker: the wall clock, and a manual clock that only the program moves.

A broker reads its clock and never waits for it. When a manual clock advances, it stops on the way
only where the time itself matters: an expired lease begins its backoff at its deadline (to 50 ms).
Due messages need no stop: no consumer can ask before the clock has arrived. Then they are delivered
in the order of their due times, as after a machine has slept.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.clock import BrokerClock
from delaylog.storage.layout import DUE_MS_MAX

START_MS: Final = 1_767_225_600_000
"""Default start of a manual clock: the beginning of 2026 (UTC)."""
_MS_MAX: Final = DUE_MS_MAX - Limits().horizon_ms
"""In 2079: by a later clock messages could be due after the last hour that a log can name."""
_TAKEN: Final = "advance takes a timedelta, or numbers: days=, hours=, minutes=, seconds=, ms="


class WallClock(BrokerClock):
    """Real time, as in `delaylog serve`: it stands still after the wall clock is set back."""


class Moved(Protocol):
    """The methods of a broker that a manual clock calls."""

    def next_stop_ms(self) -> int | None:
        """The next time at which the clock has to stop, or None."""

    def clock_moved(self) -> None:
        """Do everything that is due by the clock's new time."""


class ManualClock:
    """A clock that stands still until the program moves it. Several brokers may share it.

    Any thread may read or move it. Moves are made one after another.
    """

    def __init__(self, start: int | datetime = START_MS) -> None:
        """`start` in ms since 1970, or as a datetime with a time zone. Raises ValueError."""
        self._now_ms = moment_ms(start)
        self._brokers: list[Moved] = []
        self._moving = threading.Lock()
        self.steps = 0

    def now_ms(self) -> int:
        """The time in ms since 1970."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The time as a datetime (UTC)."""
        return datetime.fromtimestamp(self._now_ms // 1000, UTC) + timedelta(
            milliseconds=self._now_ms % 1000
        )

    @property
    def wall_ms(self) -> int:
        """The same time: a manual clock has no wall clock."""
        return self._now_ms

    @property
    def wall_us(self) -> int:
        """The same in microseconds."""
        return 1000 * self._now_ms

    @property
    def ahead_ms(self) -> int:
        """Always 0: there is no wall clock to be ahead of."""
        return 0

    def accept(self) -> int:
        """Return 0: there is no wall clock to go back to."""
        return 0

    def hold_from(self, ms: int) -> None:
        """Move to `ms`, the time of an earlier run on a folder, if that is later."""
        with self._moving:
            if ms > self._now_ms:
                self._move(ms)

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: int = 0,
    ) -> int:
        """Advance by the sum of the arguments; return the new time in ms.

        When this returns, the brokers have done everything that became due. Raises ValueError for a
        sum that is negative or not whole milliseconds, and TypeError for what is not a duration.
        """
        for given in (days, hours, minutes, seconds, ms):
            if not isinstance(given, (int, float)) or isinstance(given, bool):
                raise TypeError(f"{_TAKEN}; {given!r} is not a number")
        if by is not None and not isinstance(by, timedelta):
            raise TypeError(f"{_TAKEN}, not {by!r}")
        passed = timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms
        ) + (by or timedelta())
        if passed % timedelta(milliseconds=1):
            raise ValueError(f"the clock moves by whole milliseconds, not by {passed}")
        with self._moving:
            return self._move(self._now_ms + passed // timedelta(milliseconds=1))

    def set(self, moment: int | datetime) -> int:
        """Advance to a time; return it in ms. Raises ValueError for a past time."""
        target_ms = moment_ms(moment)
        with self._moving:
            return self._move(target_ms)

    def attach(self, broker: Moved) -> None:
        """Notify this broker of every move from now on."""
        with self._moving:
            # The clock may have moved while the broker was opened. A broker that fails here is not
            # attached: it would stop the clock for all others.
            broker.clock_moved()
            self._brokers.append(broker)

    def detach(self, broker: Moved) -> None:
        """Stop notifying a broker that is being closed, after a move in progress.

        Does nothing the second time.
        """
        with self._moving:
            if broker in self._brokers:
                self._brokers.remove(broker)

    def _move(self, target_ms: int) -> int:
        if target_ms < self._now_ms:
            raise ValueError(
                f"time does not run backwards: the clock is at {self._now_ms} ms, and cannot go to "
                f"{target_ms} ms"
            )
        if target_ms > _MS_MAX:
            raise ValueError(f"{target_ms} ms is after {_MS_MAX}, in 2079: clocks end there")
        while (stop_ms := self._next_stop_ms()) is not None and stop_ms <= target_ms:
            assert stop_ms > self._now_ms, "a broker has done everything that was due"
            self._set(stop_ms)
        self._set(target_ms)
        return target_ms

    def _next_stop_ms(self) -> int | None:
        stops = [stop for broker in self._brokers if (stop := broker.next_stop_ms()) is not None]
        return min(stops, default=None)

    def _set(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for broker in list(self._brokers):
            broker.clock_moved()


def moment_ms(moment: int | datetime) -> int:
    """Convert a time to ms since 1970. Raises ValueError, TypeError."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone: give it one, such as datetime.UTC")
        moment = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise TypeError(f"a time is an integer of ms since 1970, or a datetime, not {moment!r}")
    if not 0 <= moment <= _MS_MAX:
        raise ValueError(f"a time is from 0 to {_MS_MAX} ms since 1970, not {moment}")
    return moment
