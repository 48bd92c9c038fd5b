"""Clocks of an embedded broker: the wall clock, and one that only the program moves.

A broker asks its clock for the time and never waits for it. A clock that is moved by hand stops on
the way only where the moment itself has consequences: a lease that ends begins a backoff there, at
its deadline (to 50 ms). Messages need no stop: nobody can ask before the clock has arrived, and
then they are handed out in the order of their times, as after a night in which a machine slept.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from delaylog.broker.host.clock import BrokerClock

START_MS: Final = 1_767_225_600_000
"""Default start of a manual clock: the beginning of 2026 (UTC)."""
_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: what a datetime can say."""
_TAKEN: Final = "advance takes a timedelta, or numbers: days=, hours=, minutes=, seconds=, ms="


class Clock(Protocol):
    """What an embedded broker needs of a clock: that of a broker that serves, or one like it."""

    steps: int

    def now_ms(self) -> int:
        """The time, in ms since 1970; never less than before, but for `accept`."""

    def hold_from(self, ms: int) -> None:
        """The time has been this already: an earlier life of the folder said so."""

    @property
    def wall_ms(self) -> int:
        """Wall time, where there is one."""

    @property
    def held_ms(self) -> int:
        """By how much the time stands ahead of the wall's."""

    def accept(self) -> int:
        """Go back to wall time; returns by how much the time changed (0, or negative)."""


class WallClock(BrokerClock):
    """Real time, as `delaylog serve` takes it: it holds while the wall clock was set back."""


class Moved(Protocol):
    """A broker, as its clock sees it."""

    def next_stop_ms(self) -> int | None:
        """The next moment that must not be passed over; None if there is none."""

    def clock_moved(self) -> None:
        """The time is another one: do everything that is due by now."""


class ManualClock:
    """Time that stands still until it is moved. Several brokers may share one.

    Threads may read it while another moves it; two that move it take turns.
    """

    def __init__(self, start: int | datetime = START_MS) -> None:
        """`start` in ms since 1970, or as a datetime with a time zone. Raises ValueError."""
        self._now_ms = moment_ms(start)
        self._brokers: list[Moved] = []
        self._moving = threading.Lock()
        self.steps = 0

    def now_ms(self) -> int:
        """The time."""
        return self._now_ms

    @property
    def now(self) -> datetime:
        """The time as a datetime (UTC)."""
        return datetime.fromtimestamp(self._now_ms // 1000, UTC) + timedelta(
            milliseconds=self._now_ms % 1000
        )

    @property
    def wall_ms(self) -> int:
        """There is no other time than this."""
        return self._now_ms

    @property
    def held_ms(self) -> int:
        """It is never ahead of itself."""
        return 0

    def accept(self) -> int:
        """There is nothing to go back to."""
        return 0

    def hold_from(self, ms: int) -> None:
        """Go on from a later time that a folder has seen already, with the other brokers."""
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
        """Let so much time pass, all of it together; returns the new time in ms.

        When this returns its brokers have done all that became due. Raises ValueError for time
        that would run backwards, or that is not whole milliseconds, TypeError for what is no time.
        """
        for given in (days, hours, minutes, seconds, ms):
            if not isinstance(given, (int, float)) or isinstance(given, bool):
                raise TypeError(f"{_TAKEN}; {given!r} is no number")
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
        """Let time pass until a moment; returns it in ms. Raises ValueError for a past one."""
        target_ms = moment_ms(moment)
        with self._moving:
            return self._move(target_ms)

    def attach(self, broker: Moved) -> None:
        """Move this broker along from now on."""
        with self._moving:
            # The clock may have been moved while the broker began. One that fails at that is not
            # moved along: it would stop the clock for all others.
            broker.clock_moved()
            self._brokers.append(broker)

    def detach(self, broker: Moved) -> None:
        """It is to be closed; who moves the clock just now ends that first."""
        with self._moving:
            self._brokers.remove(broker)

    def _move(self, target_ms: int) -> int:
        if target_ms < self._now_ms:
            raise ValueError(
                f"time does not run backwards: it is {self._now_ms}, and {target_ms} was asked for"
            )
        if target_ms > _MS_MAX:
            raise ValueError(f"{target_ms} ms lie behind the year 9999")
        while (stop_ms := self._next_stop_ms()) is not None and stop_ms <= target_ms:
            assert stop_ms > self._now_ms, "a broker leaves nothing that is due"
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
    """A moment in ms since 1970. Raises ValueError, TypeError saying what one is."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone: give it one, such as datetime.UTC")
        return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise TypeError(f"a moment is whole ms since 1970, or a datetime, not {moment!r}")
    if not 0 <= moment <= _MS_MAX:
        raise ValueError(f"a moment lies from 0 to {_MS_MAX} ms since 1970, not at {moment}")
    return moment
