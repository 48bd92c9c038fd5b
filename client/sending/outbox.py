"""Outbox: the state that the senders of a client share: limits, producers and unread failures.

The number and the size of waiting messages are bounded. A program that awaits `room()` before each
send never exceeds the bound; otherwise it gets OutboxFull before memory runs out.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from delaylog.client.errors import ClientError, IdInUse, NotReachedInTime, SendFailed
from delaylog.client.hooks import Hooks, headers_with
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch
from delaylog.client.sending.lane import RETRY_FOR_S_MAX, Producers
from delaylog.client.wire.checks import check_whole
from delaylog.client.wire.times import check_span, split_limit

_log = logging.getLogger("delaylog.client")

ROW_BYTES: Final = 64
"""Counted per message in addition to its body, so that empty messages are bounded too."""
OVERRUN: Final = 2
"""`room()` blocks at the limits; a send is refused at this multiple of them."""
LAST_ANSWER_S: Final = 5.0
FAILURES_SHOWN: Final = 100
LINGER_MAX: Final = timedelta(minutes=1)
INTERRUPTED_S: Final = 2.0
"""How long queued messages are sent after an interruption such as Ctrl-C."""
UNSEEN_BATCHES_MAX: Final = 1_000
"""How many batches with unread failures are kept; beyond that only their count."""


class OutboxFull(ClientError):
    """Too many messages are waiting, so this one was refused. Await `client.room()` first."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """Limits of requests and of the queue, and how long sends are retried."""

    linger: timedelta = timedelta(0)
    batch_max: int = 10_000
    batch_bytes_max: int = 4 << 20
    pending_max: int = 100_000
    pending_bytes_max: int = 256 << 20
    retry_for: timedelta = timedelta(minutes=1)

    @property
    def close_for_s(self) -> float:
        """How long `close` waits for queued messages, including the last answer."""
        return self.retry_for.total_seconds() + LAST_ANSWER_S

    def __post_init__(self) -> None:
        for name in ("batch_max", "batch_bytes_max", "pending_max", "pending_bytes_max"):
            check_whole(name, getattr(self, name))
        check_span("retry_for", self.retry_for)
        check_span("linger", self.linger)
        if not timedelta(0) <= self.linger <= LINGER_MAX:
            raise ValueError(f"linger lies from 0 to {LINGER_MAX}: {self.linger}")
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
        if not 0 <= self.retry_for.total_seconds() <= RETRY_FOR_S_MAX:
            raise ValueError(
                f"retry_for lies from 0 to {RETRY_FOR_S_MAX:.0f} s, since brokers forget after "
                f"ten minutes what was sent: {self.retry_for}"
            )


@dataclass(slots=True)
class Outbox:
    """The outbox of one client. Its senders update the counters."""

    limits: SendLimits = field(default_factory=SendLimits)
    producers: Producers = field(default_factory=Producers)
    hooks: Hooks | None = None
    random: Callable[[], float] = random.random
    rows: int = 0
    size_bytes: int = 0
    room_waiters: dict[Any, None] = field(default_factory=dict)
    """The waiters for room, which the senders wake."""
    _unseen: list[Batch] = field(default_factory=list)
    _uncounted: int = 0
    _failing: bool = False
    """Whether a send has failed since the last accepted one."""

    @property
    def crowded(self) -> bool:
        """Whether `room` blocks."""
        limits = self.limits
        return self.rows >= limits.pending_max or self.size_bytes >= limits.pending_bytes_max

    @property
    def unsent(self) -> int:
        """The number of messages that wait, or whose failure was never read."""
        return self.rows + self._uncounted + sum(len(batch.unseen) for batch in self._unseen)

    def check_room(self) -> None:
        """OutboxFull if a send without `room` must be refused."""
        limits = self.limits
        if (
            self.rows >= OVERRUN * limits.pending_max
            or self.size_bytes >= OVERRUN * limits.pending_bytes_max
        ):
            raise OutboxFull(
                f"{self.rows} messages ({self.size_bytes} bytes) wait to be sent, pending_max is "
                f"{limits.pending_max}: await client.room() before further sends"
            )

    def no_room(self, limit_s: float) -> NotReachedInTime:
        """The error of a send that has waited for room until its time limit."""
        return NotReachedInTime(
            f"{self.rows} messages ({self.size_bytes} bytes) wait to be sent, and there was no "
            f"room for another one (time limit {limit_s:g} s): nothing was sent"
        )

    def sent(self, batch: Batch, n: int, now_s: float) -> None:
        """Report that `n` rows of a batch were accepted."""
        self._failing = False
        if self.hooks is not None:
            self._tell(self.hooks.on_sent, batch.topic, n, now_s - batch.opened_at_s)

    def retried(self, topic: str, n: int, error: Exception) -> None:
        """Report that a request is retried."""
        if not self._failing:
            # Log once per outage, not once per retry.
            self._failing = True
            _log.warning("sends to %s wait: %s", topic, error)
        if self.hooks is not None:
            self._tell(self.hooks.on_send_retry, topic, n, error)

    def failed(self, batch: Batch, n: int, error: Exception, now_s: float) -> None:
        """Report that `n` rows of a batch have failed."""
        if self.hooks is not None:
            seconds = now_s - batch.opened_at_s
            self._tell(self.hooks.on_send_failed, batch.topic, n, error, seconds)

    def ended(self, batch: Batch) -> None:
        """Record that all rows of a batch have an outcome."""
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
        """The failures that were never read, since the last call."""
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

    def reset_after_fork(self) -> None:
        """Reset in a forked child: queued and failed messages belong to the parent."""
        self.rows = self.size_bytes = self._uncounted = 0
        self._unseen = []
        self.room_waiters = {}

    def headers(self, topic: str, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The headers of a message plus those of the hooks. The message's own headers win."""
        return headers if self.hooks is None else headers_with(self.hooks, topic, headers)

    def _forget_seen(self) -> None:
        self._unseen = [batch for batch in self._unseen if batch.unseen]

    def _tell(self, hook: Callable[..., None], *facts: object) -> None:
        try:
            hook(*facts)
        except Exception:
            _log.exception("a hook failed; the sends go on")


# -------------------------------------- the time limit of a send, and the result of `send_many`


def split_send_limit(given: Mapping[str, Any], usual_s: float) -> tuple[float, Any]:
    """The time limit among the keywords of a send, in seconds; and the other keywords."""
    limit_s, rest = split_limit(given)
    if limit_s is None:
        return usual_s, rest
    if limit_s > RETRY_FOR_S_MAX:
        raise ValueError(
            f"the time limit of a send is at most {RETRY_FOR_S_MAX:.0f} s, since brokers forget "
            f"after ten minutes what was sent: {limit_s:g} s"
        )
    return limit_s, rest


def all_sent(outcomes: Iterable[Sent | BaseException]) -> list[Sent]:
    """The Sents, or SendFailed with the distinct failures and the outcome of each message."""
    # For many messages an id in use is a normal result: the caller chose `reject`.
    ended = [each.sent if isinstance(each, IdInUse) else each for each in outcomes]
    sent = [each for each in ended if isinstance(each, Sent)]
    if len(sent) < len(ended):
        failures = dict.fromkeys(each for each in ended if not isinstance(each, Sent))
        raise SendFailed(list(failures), len(ended) - len(sent), ended)
    return sent
