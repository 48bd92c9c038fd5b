"""Decides how many attempts at a target may begin: circuit breaker, throttle, rate, concurrency.

A breaker is closed, open or half-open. Failed attempts open it: a target that fails gets one probe
at the end of each pause, and pauses double. One success closes it. A target that is disabled gets
nothing. The number of attempts in flight begins with one, grows with successes and halves with each
failure, so that a thousand targets that hang hold a thousand connections. Time is an argument; what
must survive a restart is in `Health`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delaylog.broker.engine.push.targets import WELL, Health
from delaylog.broker.engine.topics.rates import TokenBucket
from delaylog.broker.push.outcomes import Outcome, Verdict
from delaylog.storage.layout import NEVER_MS

FAILURES_TO_OPEN: Final = 5
"""Failed attempts in a row that open the breaker."""
WINDOW_MS: Final = 60_000
WINDOW_ATTEMPTS_MIN: Final = 20
WINDOW_FAILED_SHARE: Final = 0.5
"""So many attempts in a window, of which this share failed, open it too."""
PAUSE_FIRST_MS: Final = 5_000
PAUSE_MS_MAX: Final = 600_000
THROTTLE_MS: Final = 1_000
"""The pause after an answer that throttles, at least: such attempts are not counted."""


class Breaker:
    """The attempts at one target. `health` changes only when something worth storing happened."""

    def __init__(
        self, health: Health = WELL, *, concurrency: int, per_second: float | None = None
    ) -> None:
        """`per_second`: attempts that may begin in a second, None: any number."""
        assert concurrency > 0, "a target without attempts is a disabled one"
        self.health = health
        self.in_flight = 0
        self._concurrency = concurrency
        self._window = 1
        """Attempts that may be in flight now."""
        self._bucket = None
        if per_second is not None:
            self._bucket = TokenBucket(per_second, max(int(per_second), 1))
        self._row = 0
        """Failed attempts since the last success."""
        self._since_ms = 0
        self._attempts = self._failed = 0

    def permitted(self, now_ms: int, wanted: int) -> int:
        """Begin up to `wanted` attempts; returns how many. Each must be reported to `ended`, or to
        `unused` if it was not made.
        """
        if self.blocked_until_ms > now_ms:
            return 0
        count = max(min(wanted, self._room()), 0)
        if self._bucket is not None and count:
            count = self._bucket.take(now_ms, count)
        self.in_flight += count
        return count

    def unused(self, count: int) -> None:
        """Attempts that were permitted and not made."""
        self.in_flight -= count
        assert self.in_flight >= 0, "each attempt ends once"
        if self._bucket is not None:
            self._bucket.give_back(count)

    @property
    def blocked_until_ms(self) -> int:
        """No attempt begins before it, Unix ms, whatever ends; NEVER_MS if it is disabled."""
        health = self.health
        if health.disabled:
            return NEVER_MS
        return max(health.open_until_ms, health.throttled_until_ms)

    def ready_at_ms(self, now_ms: int) -> int:
        """Earliest time, from `now_ms` on, at which an attempt may begin; NEVER_MS while that
        depends on the end of an attempt or on an operator.
        """
        at_ms = max(self.blocked_until_ms, now_ms)
        if self._room() <= 0:
            return NEVER_MS
        if self._bucket is not None and at_ms < NEVER_MS:
            at_ms = max(at_ms, self._bucket.ready_at_ms(now_ms))
        return at_ms

    def ended(self, outcome: Outcome, now_ms: int) -> None:
        """Take in the result of an attempt."""
        self.in_flight -= 1
        assert self.in_flight >= 0, "each attempt ends once"
        if self.health.disabled:
            # Attempts that began before say nothing: only an operator enables the target.
            return
        if outcome.verdict is Verdict.GONE:
            self.health = replace(self.health, disabled="gone", reason=outcome.reason)
            return
        if outcome.verdict is Verdict.THROTTLED:
            wait_ms = max(outcome.retry_after_ms or 0, THROTTLE_MS)
            until_ms = max(self.health.throttled_until_ms, now_ms + wait_ms)
            self.health = replace(self.health, throttled_until_ms=until_ms, reason=outcome.reason)
        self._count(outcome.unwell, now_ms)
        if outcome.unwell:
            self._window = max(self._window // 2, 1)
            self._failed_once(outcome.reason, now_ms)
            return
        if outcome.verdict is Verdict.ACKED:
            self._window = min(self._window + 1, self._concurrency)
        if outcome.verdict is not Verdict.THROTTLED and self.health is not WELL:
            # The window goes on, so that a target that fails half of the time opens it too.
            if self.health.open_until_ms:
                self._attempts = self._failed = 0
            self._row = 0
            until_ms = self.health.throttled_until_ms
            self.health = WELL if until_ms <= now_ms else replace(WELL, throttled_until_ms=until_ms)

    def _room(self) -> int:
        return (1 if self.health.open_until_ms else self._window) - self.in_flight

    def _count(self, failed: bool, now_ms: int) -> None:
        if not 0 <= now_ms - self._since_ms < WINDOW_MS:
            self._since_ms, self._attempts, self._failed = now_ms, 0, 0
        self._attempts += 1
        self._failed += failed

    def _failed_once(self, reason: str, now_ms: int) -> None:
        health = self.health
        self._row += 1
        since_ms = health.failing_since_ms or now_ms
        if health.open_until_ms:
            # Attempts that began before the breaker opened say nothing new.
            opens = now_ms >= health.open_until_ms
        else:
            many = self._attempts >= WINDOW_ATTEMPTS_MIN
            share = many and self._failed >= self._attempts * WINDOW_FAILED_SHARE
            opens = self._row >= FAILURES_TO_OPEN or share
        if opens:
            pause_ms = min(PAUSE_FIRST_MS << min(health.turns, 16), PAUSE_MS_MAX)
            health = replace(health, open_until_ms=now_ms + pause_ms, turns=health.turns + 1)
        self.health = replace(health, failing_since_ms=since_ms, reason=reason)
