"""Quotas of a topic: send rate, number and bytes of living messages, and how far ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from delaylog.broker.engine.deliver.expiry import make_room
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.send.merge import Merge
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.rates import TokenBucket
from delaylog.broker.engine.topics.settings import Quota
from delaylog.broker.engine.transactions.table import NOTHING_OUTSTANDING, Outstanding
from delaylog.contract.members import ms_in_words
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import MessageBatch, Single, column_max, record_size

RATE_SECONDS: Final = 10
"""A rate is an average over this time, so a burst may be as large as that."""
_RETRY_S: Final = 5
"""Retry-After where only consumers can make room."""


class QuotaError(EngineError):
    """A quota is used up; nothing was done. Try again after `facts["retry_after_s"]`."""

    code = "quota"
    fresh: Int64Array | None = None
    """Rows of the batch that would have become new messages, and repeats of their ids; None = all.
    Others need no quota.
    """


class BeyondQuotaError(QuotaError):
    """The send alone exceeds a quota; nothing was done. Send less at once."""

    code = "too_large"


def check_quota(
    state: EngineState,
    topic: Topic,
    batch: MessageBatch,
    merge: Merge,
    now_ms: int,
    *,
    outstanding: Outstanding | None = None,
) -> None:
    """Refuse a batch that would exceed a quota; take its rows from the rate's tokens.

    `outstanding` = rows that transactions have staged or committed and not published yet. They
    count against the quota, since a later commit or publication must not exceed it.

    A row that repeats the id of a living message needs no quota. If it replaces that message, only
    the limit of how far ahead it may be due applies. Expired messages end where that makes room.
    """
    quota = topic.settings.quota
    if quota is None:
        return
    fresh = _fresh(batch, merge)
    try:
        if quota.horizon_ms:
            _check_horizon(quota, batch, merge.accepted, now_ms)
        n = batch.n if fresh is None else len(fresh)
        if n:
            size = batch.bytes_of(fresh) if quota.bytes else 0
            _take(state, _Room(topic, quota, n, size, outstanding or NOTHING_OUTSTANDING), now_ms)
    except QuotaError as error:
        error.fresh = _with_repeats(fresh, merge)
        raise


def check_quota_of_few(
    state: EngineState,
    topic: Topic,
    quota: Quota,
    singles: Sequence[Single],
    ahead_ms: int,
    now_ms: int,
) -> None:
    """The same for single messages, all of them new; `ahead_ms` = how far ahead the last is due."""
    _check_ahead(quota, ahead_ms)
    size = sum(map(record_size, singles)) if quota.bytes else 0
    _take(state, _Room(topic, quota, len(singles), size, NOTHING_OUTSTANDING), now_ms)


def _fresh(batch: MessageBatch, merge: Merge) -> Int64Array | None:
    """Rows that become new messages rather than replacements; None = all."""
    if merge.replaced_rows is None:
        return merge.accepted
    stored = np.arange(batch.n) if merge.accepted is None else merge.accepted
    return stored[~np.isin(stored, merge.replaced_rows)]


def _with_repeats(fresh: Int64Array | None, merge: Merge) -> Int64Array | None:
    """Fresh rows, and those that repeat the id of one of them."""
    if fresh is None or merge.kept is None:
        return fresh
    rows, answers, *_ = merge.kept
    return np.concatenate((fresh, rows[np.isin(-answers - 1, fresh)]))


def _check_horizon(
    quota: Quota, batch: MessageBatch, stored: Int64Array | None, now_ms: int
) -> None:
    column = batch.deliver_at_ms if batch.delay_ms is None else batch.delay_ms
    assert column is not None, "decode_send leaves exactly one of the two time columns"
    if stored is not None:
        if len(stored) == 0:
            return
        column = column if isinstance(column, int) else column[stored]
    _check_ahead(quota, column_max(column) - (now_ms if batch.delay_ms is None else 0))


def _check_ahead(quota: Quota, ahead_ms: int) -> None:
    if quota.horizon_ms and ahead_ms > quota.horizon_ms:
        # Waiting helps: the due time comes nearer.
        wait_s = math.ceil((ahead_ms - quota.horizon_ms) / 1000)
        raise QuotaError(
            f"this topic takes messages at most {ms_in_words(quota.horizon_ms)} ahead",
            quota="horizon_ms",
            retry_after_s=wait_s,
        )


class _Room(NamedTuple):
    """Whether living messages leave room for `n` rows of `size` bytes."""

    topic: Topic
    quota: Quota
    n: int
    size: int
    outstanding: Outstanding

    @property
    def pending(self) -> int:
        return self.topic.pending + self.outstanding.staged_rows

    @property
    def pending_bytes(self) -> int:
        # Outstanding rows are not in `bytes_sent` yet, so their exact bytes are added instead.
        rows = max(self.pending - self.outstanding.rows, 0)
        return rows * self.topic.bytes_sent // max(self.topic.sent, 1) + self.outstanding.bytes

    def check_alone(self) -> None:
        """Raise BeyondQuotaError if there is not enough room even in an empty topic."""
        quota = self.quota
        for name, asked, most, unit in (
            ("rate", self.n, quota.rate * RATE_SECONDS, f"messages in {RATE_SECONDS} s"),
            ("pending", self.n, quota.pending, "messages"),
            ("bytes", self.size, quota.bytes, "bytes"),
        ):
            if most and asked > most:
                raise BeyondQuotaError(
                    f"this topic takes at most {most} {unit}, and this send alone has {asked}: "
                    "send less at once",
                    quota=name,
                )

    def enough(self) -> bool:
        """Whether no quota is exceeded."""
        quota = self.quota
        return (not quota.pending or self.pending + self.n <= quota.pending) and (
            not quota.bytes or self.pending_bytes + self.size <= quota.bytes
        )

    def refusal(self) -> QuotaError:
        """The error where there is not enough room."""
        quota, pending = self.quota, self.pending
        if quota.pending and pending + self.n > quota.pending:
            text = f"{pending} messages live in this topic, its quota is {quota.pending}"
            return QuotaError(text, quota="pending", retry_after_s=_RETRY_S)
        text = f"about {self.pending_bytes} bytes live in this topic, its quota is {quota.bytes}"
        return QuotaError(text, quota="bytes", retry_after_s=_RETRY_S)


def _take(state: EngineState, room: _Room, now_ms: int) -> None:
    topic, quota = room.topic, room.quota
    room.check_alone()
    if not make_room(state, topic, now_ms, room.enough):
        raise room.refusal()
    if quota.rate:
        _take_rate(topic, quota, room.n, now_ms)


def _take_rate(topic: Topic, quota: Quota, n: int, now_ms: int) -> None:
    bucket = topic.send_bucket
    burst = quota.rate * RATE_SECONDS
    if bucket is None or topic.send_rate != quota.rate:
        bucket = topic.send_bucket = TokenBucket(quota.rate, burst)
        topic.send_rate = quota.rate
    assert n <= burst, "a send that never fits was refused"
    taken = bucket.take(now_ms, n)
    if taken < n:
        bucket.give_back(taken)
        raise QuotaError(
            f"this topic takes {quota.rate} messages a second",
            quota="rate",
            retry_after_s=math.ceil((n - taken) / quota.rate),
        )
