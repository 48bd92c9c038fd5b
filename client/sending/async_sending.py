"""AsyncSending: the handle of a message that an asyncio program has queued."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from delaylog.client.holding import HANDLED, noted
from delaylog.client.models import Sent
from delaylog.client.sending.sending import Sending


class AsyncSending(Sending):
    """The handle of an asyncio send. Any number of tasks may await it and be cancelled."""

    __slots__ = ()

    def result(self) -> Sent:
        """The Sent, or the error raised, without waiting. InvalidStateError while pending."""
        self._outcome()
        return self._ended()

    def __await__(self) -> Generator[Any, None, Sent]:
        if self._batch.is_settled(self._row):
            return self._at_once()
        # One future per waiter, since a cancelled task cancels the future that it awaits. Its
        # own C iterator is used, since a Python one would make a wait half as expensive again.
        waiter: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        self._batch.waiters[waiter] = self._row
        return self._noted(waiter).__await__() if HANDLED.get() else waiter.__await__()

    async def _noted(self, waiter: asyncio.Future[Sent]) -> Sent:
        return noted(self._batch.topic, await waiter)

    def _at_once(self) -> Generator[Any, None, Sent]:
        return self._ended()
        yield
