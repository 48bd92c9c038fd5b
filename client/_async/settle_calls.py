"""Calls that settle received messages, of clients and of embedded brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Unpack

from delaylog.client.keywords import SettleLimits
from delaylog.client.models import Settled
from delaylog.client.shards.settling import ToSettle, Verb
from delaylog.client.wire.durations import delay_of, duration_ms, lease_of


class AsyncSettleCalls(ABC):
    """The calls; a subclass carries them out in `_settle`."""

    async def ack(self, messages: ToSettle, **limits: Unpack[SettleLimits]) -> list[Settled]:
        """Acknowledge messages, so that they are not delivered again. Returns a result for each.

        If an answer is lost, the call is retried: on a cluster until the time limit, otherwise
        once. If it still fails, its error is raised, or SettleFailed if only some of several calls
        failed.
        """
        return await self._settle("ack", messages, **limits)

    async def nack(
        self,
        messages: ToSettle,
        *,
        delay: timedelta | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        **limits: Unpack[SettleLimits],
    ) -> list[Settled]:
        """Have messages redelivered after a delay (None: the backoff). Errors as for `ack`.

        The broker stores the reason (up to 1,024 bytes) with each attempt.
        """
        back_ms = delay_of(delay, delay_ms)
        return await self._settle("nack", messages, delay_ms=back_ms, reason=reason, **limits)

    async def reject(
        self, messages: ToSettle, *, reason: str | None = None, **limits: Unpack[SettleLimits]
    ) -> list[Settled]:
        """Make messages dead letters now, whatever retries are left. Errors as for `ack`."""
        return await self._settle("reject", messages, reason=reason, **limits)

    async def release(self, messages: ToSettle, **limits: Unpack[SettleLimits]) -> list[Settled]:
        """Return messages as if they had not been received: ready at once, no attempt is counted.

        Errors as for `ack`.
        """
        return await self._settle("extend", messages, lease_ms=0, **limits)

    async def extend(
        self,
        messages: ToSettle,
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[SettleLimits],
    ) -> list[Settled]:
        """Extend leases to this time from now; one of the two is required. Errors as for `ack`."""
        wanted_ms = lease_of(lease, lease_ms)
        return await self._settle("extend", messages, lease_ms=wanted_ms, **limits)

    async def begin(
        self,
        messages: ToSettle,
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[SettleLimits],
    ) -> list[Settled]:
        """Count attempts from now on at messages that were received with `begin`.

        If the lease of such a message ends before, its attempt does not count. The call extends
        the leases to this time from now (None: the topic's). Errors as for `ack`.
        """
        wanted_ms = duration_ms("lease", lease, lease_ms)
        return await self._settle("begin", messages, lease_ms=wanted_ms, **limits)

    @abstractmethod
    async def _settle(self, verb: Verb, messages: ToSettle, **times: Any) -> list[Settled]:
        """Settle messages; `times` are SettleTimes and SettleLimits."""
