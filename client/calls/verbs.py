"""The verbs that settle messages, with their keywords, checks and documentation.

Each is declared here alone. Messages, clients and plain clients have it as a method, which
`settle_calls` makes of the function.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple, Unpack

from delaylog.client.keywords import SettleLimits
from delaylog.client.shards.settlements import ToSettle, Verb
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import check_span, delay_of, duration_ms


class Asked(NamedTuple):
    """What to do with messages."""

    verb: Verb
    messages: ToSettle
    times: Any
    """SettleTimes and SettleLimits."""


def ack(messages: ToSettle, **limits: Unpack[SettleLimits]) -> Asked:
    """Acknowledge messages: they are done and not delivered again.

    If an answer is lost, the call is retried: on a cluster until the time limit, otherwise once. If
    it still fails, its error is raised, or SettleFailed if only some of several calls failed.
    """
    check_keywords("ack", limits, SettleLimits)
    return Asked("ack", messages, limits)


def nack(
    messages: ToSettle,
    *,
    delay: timedelta | None = None,
    reason: str | None = None,
    **limits: Unpack[SettleLimits],
) -> Asked:
    """Have messages delivered again after this delay; without one after the topic's backoff.

    After `max_retry` retries a message becomes a dead letter instead. The broker stores the reason
    (up to 1,024 bytes) with each attempt. Errors as for `ack`.
    """
    check_keywords("nack", limits, SettleLimits, "delay", "reason")
    return Asked("nack", messages, {"delay_ms": delay_of(delay), "reason": reason, **limits})


def reject(messages: ToSettle, reason: str | None = None, **limits: Unpack[SettleLimits]) -> Asked:
    """Make messages dead letters now, whatever retries are left. The reason is stored.

    Errors as for `ack`.
    """
    check_keywords("reject", limits, SettleLimits, "reason")
    return Asked("reject", messages, {"reason": reason, **limits})


def release(messages: ToSettle, **limits: Unpack[SettleLimits]) -> Asked:
    """Return messages as if they had not been received: ready at once, no attempt is counted.

    Errors as for `ack`.
    """
    check_keywords("release", limits, SettleLimits)
    return Asked("extend", messages, {"lease_ms": 0, **limits})


def extend(messages: ToSettle, *, lease: timedelta, **limits: Unpack[SettleLimits]) -> Asked:
    """Extend leases to this time from now; 0 is a `release`. Errors as for `ack`."""
    check_keywords("extend", limits, SettleLimits, "lease")
    check_span("lease", lease)
    return Asked("extend", messages, {"lease_ms": duration_ms("lease", lease), **limits})


def begin(
    messages: ToSettle,
    *,
    lease: timedelta | None = None,
    **limits: Unpack[SettleLimits],
) -> Asked:
    """Count attempts from now on at messages that were received with `begin`.

    If the lease of such a message ends before, its attempt does not count. The call extends the
    leases to this time from now (None: the topic's). Errors as for `ack`.
    """
    check_keywords("begin", limits, SettleLimits, "lease")
    return Asked("begin", messages, {"lease_ms": duration_ms("lease", lease), **limits})
