"""Quotas of a topic: how fast it may be sent to, how much may wait in it, how far ahead."""

from __future__ import annotations

import math
from typing import Final

from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.settings import Quota
from delaylog.broker.engine.token_bucket import TokenBucket
from delaylog.storage.batch import MessageBatch, column_max

RATE_SECONDS: Final = 10
"""A rate is an average over so long: that much may come at once."""
_RETRY_S: Final = 5
"""When to ask again where only consumers can make room."""


class QuotaError(EngineError):
    """A quota is used up: nothing was done; ask again after `facts["retry_after_s"]`."""

    code = "quota"


def check_quota(topic: Topic, batch: MessageBatch, now_ms: int) -> None:
    """Refuse a batch that would go over a quota. What it takes of the rate is taken."""
    quota = topic.settings.quota
    if quota is None:
        return
    n = batch.n
    if quota.horizon_ms:
        column = batch.delay_ms
        ahead_ms = column_max(column) if column is not None else -now_ms
        if column is None and batch.deliver_at_ms is not None:
            ahead_ms = column_max(batch.deliver_at_ms) - now_ms
        if ahead_ms > quota.horizon_ms:
            # It comes within the quota as time goes by.
            wait_s = math.ceil((ahead_ms - quota.horizon_ms) / 1000)
            raise QuotaError(
                f"this topic takes messages at most {quota.horizon_ms} ms ahead",
                quota="horizon_ms",
                retry_after_s=wait_s,
            )
    living = topic.living
    if quota.pending and living + n > quota.pending:
        raise QuotaError(
            f"{living} messages live in this topic, its quota is {quota.pending}",
            quota="pending",
            retry_after_s=_RETRY_S,
        )
    if quota.bytes:
        held = living * topic.bytes_sent // max(topic.sent, 1)
        if held + batch.size_bytes > quota.bytes:
            raise QuotaError(
                f"about {held} bytes live in this topic, its quota is {quota.bytes}",
                quota="bytes",
                retry_after_s=_RETRY_S,
            )
    if quota.rate:
        _take_rate(topic, quota, n, now_ms)


def _take_rate(topic: Topic, quota: Quota, n: int, now_ms: int) -> None:
    bucket = topic.send_bucket
    burst = quota.rate * RATE_SECONDS
    if bucket is None or topic.send_rate != quota.rate:
        bucket = topic.send_bucket = TokenBucket(quota.rate, burst)
        topic.send_rate = quota.rate
    if n > burst:
        raise QuotaError(
            f"a batch of {n} is more than this topic takes in {RATE_SECONDS} s ({burst})",
            quota="rate",
            retry_after_s=RATE_SECONDS,
        )
    taken = bucket.take(now_ms, n)
    if taken < n:
        bucket.give_back(taken)
        raise QuotaError(
            f"this topic takes {quota.rate} messages a second",
            quota="rate",
            retry_after_s=math.ceil((n - taken) / quota.rate),
        )
