"""Outbox: what a client's senders share: its limits, its producers, and what has failed unseen.

The one rule: what waits to be sent is bounded, in messages and in bytes. A program that asks for
`room()` before it sends never meets the bound; one that does not is told by OutboxFull, before its
messages have eaten the memory.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.client.errors import ClientError, SendFailed
from delaylog.client.hooks import Hooks
from delaylog.client.sending.batch import Batch
from delaylog.client.sending.lane import RETRY_FOR_S_MAX
from delaylog.client.sending.producers import Producers
from delaylog.client.wire.checks import check_seconds, check_whole

_log = logging.getLogger("delaylog.client")

ROW_BYTES: Final = 64
"""Counted for each message beside its body, so that empty ones are bounded too."""
OVERRUN: Final = 2
"""`room()` waits at the limits; a send is refused at so many times as much."""
LAST_ANSWER_S: Final = 5.0
FAILURES_SHOWN: Final = 100
INTERRUPTED_S: Final = 2.0
"""What a client that is left by an interruption gives to what is queued."""
UNSEEN_BATCHES_MAX: Final = 1_000
"""Batches with failures that nobody looked at; of more only the count is kept."""


class OutboxFull(ClientError):
    """Too many messages wait to be sent; this one was not taken. Await `client.room()` first."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How much goes into a request, how much waits, and for how long it is tried."""

    linger_ms: float = 0
    batch_max: int = 10_000
    batch_bytes_max: int = 4 << 20
    pending_max: int = 100_000
    pending_bytes_max: int = 256 << 20
    retry_for_s: float = 60.0

    @property
    def close_for_s(self) -> float:
        """How long a client that is closed lets what is queued be tried, a last answer included."""
        return self.retry_for_s + LAST_ANSWER_S

    def __post_init__(self) -> None:
        for name in ("batch_max", "batch_bytes_max", "pending_max", "pending_bytes_max"):
            check_whole(name, getattr(self, name))
        check_seconds("retry_for_s", self.retry_for_s)
        if isinstance(self.linger_ms, bool) or not isinstance(self.linger_ms, (int, float)):
            raise TypeError(f"linger_ms is a number, not {type(self.linger_ms).__name__}")
        if not 0 <= self.linger_ms <= 60_000:
            raise ValueError(f"linger_ms lies from 0 to 60000: {self.linger_ms}")
        if not 1 <= self.batch_max <= 100_000:
            raise ValueError(f"batch_max lies from 1 to 100000: {self.batch_max}")
        if not 1 <= self.batch_bytes_max <= 32 << 20:
            raise ValueError(f"batch_bytes_max lies from 1 to 32 MiB: {self.batch_bytes_max}")
        if self.pending_max < self.batch_max:
            raise ValueError(f"pending_max is at least batch_max, {self.batch_max}")
        if self.pending_bytes_max < self.batch_bytes_max:
            raise ValueError(
                f"pending_bytes_max is at least batch_bytes_max, {self.batch_bytes_max}"
            )
        if not 0 <= self.retry_for_s <= RETRY_FOR_S_MAX:
            raise ValueError(
                f"retry_for_s lies from 0 to {RETRY_FOR_S_MAX:.0f}, since brokers forget after "
                f"ten minutes what was sent: {self.retry_for_s}"
            )


@dataclass(slots=True)
class Outbox:
    """One of a client; its senders count what waits in it."""

    limits: SendLimits = field(default_factory=SendLimits)
    producers: Producers = field(default_factory=Producers)
    hooks: Hooks | None = None
    random: Callable[[], float] = random.random
    rows: int = 0
    size_bytes: int = 0
    room_waiters: dict[Any, None] = field(default_factory=dict)
    """Whoever waits for room, woken by the senders."""
    _unseen: list[Batch] = field(default_factory=list)
    _uncounted: int = 0
    _failing: bool = False
    """Whether a send has failed since the last one that was accepted."""

    @property
    def crowded(self) -> bool:
        """Whether who asks for room waits."""
        limits = self.limits
        return self.rows >= limits.pending_max or self.size_bytes >= limits.pending_bytes_max

    @property
    def unsent(self) -> int:
        """Messages that wait, or have failed and nobody looked at it."""
        return self.rows + self._uncounted + sum(len(batch.unseen) for batch in self._unseen)

    def check_room(self) -> None:
        """OutboxFull where even a send that did not ask for room is refused."""
        limits = self.limits
        if (
            self.rows >= OVERRUN * limits.pending_max
            or self.size_bytes >= OVERRUN * limits.pending_bytes_max
        ):
            raise OutboxFull(
                f"{self.rows} messages ({self.size_bytes} bytes) wait to be sent, pending_max is "
                f"{limits.pending_max}: await client.room() before further sends"
            )

    def sent(self, batch: Batch, n: int, now_s: float) -> None:
        """n rows of a batch were accepted."""
        self._failing = False
        if self.hooks is not None:
            self._tell(self.hooks.on_sent, batch.topic, n, now_s - batch.opened_at_s)

    def retried(self, topic: str, n: int, error: Exception) -> None:
        """A request is sent again."""
        if not self._failing:
            # Once an outage: whoever waits wants to know for what, and not every 50 ms.
            self._failing = True
            _log.warning("sends to %s wait: %s", topic, error)
        if self.hooks is not None:
            self._tell(self.hooks.on_send_retry, topic, n, error)

    def failed(self, topic: str, n: int, error: Exception) -> None:
        """n rows were given up."""
        if self.hooks is not None:
            self._tell(self.hooks.on_send_failed, topic, n, error)

    def ended(self, batch: Batch) -> None:
        """All rows of a batch have their ends."""
        self.rows -= batch.rows
        self.size_bytes -= batch.size_bytes
        if batch.unseen:
            if len(self._unseen) >= UNSEEN_BATCHES_MAX:
                self._forget_seen()
            if len(self._unseen) < UNSEEN_BATCHES_MAX:
                self._unseen.append(batch)
            else:
                self._uncounted += len(batch.unseen)
                _log.warning("%d sends to %s failed unseen", len(batch.unseen), batch.topic)

    def take_unseen(self) -> SendFailed | None:
        """What failed and nobody looked at, since it was last asked for."""
        batches, self._unseen = self._unseen, []
        rows, self._uncounted = self._uncounted, 0
        shown: dict[BaseException, None] = {}
        for batch in batches:
            rows += len(batch.unseen)
            for row in sorted(batch.unseen):
                if len(shown) < FAILURES_SHOWN:
                    shown[batch.failed[row]] = None
            batch.unseen.clear()
        return SendFailed(list(shown), rows) if rows else None

    def begin_afresh(self) -> None:
        """In a forked child: what is queued, and what has failed, is the parent's."""
        self.rows = self.size_bytes = self._uncounted = 0
        self._unseen = []
        self.room_waiters = {}

    def headers(self, topic: str, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The headers of a message with those that a hook adds; the message's own win."""
        if self.hooks is None:
            return headers
        try:
            more = self.hooks.outgoing_headers(topic)
        except Exception:
            _log.exception("a hook failed; the message goes without its headers")
            return headers
        return {**more, **(headers or {})} if more else headers

    def _forget_seen(self) -> None:
        self._unseen = [batch for batch in self._unseen if batch.unseen]

    def _tell(self, hook: Callable[..., None], *facts: object) -> None:
        try:
            hook(*facts)
        except Exception:
            _log.exception("a hook failed; the sends go on")
