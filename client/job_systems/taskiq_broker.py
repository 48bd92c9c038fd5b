"""A taskiq broker on the delay log: its queue is a topic, delays are due times, acks are leases.

The calls of the client for threads are made in threads, so that leases are extended even while a
task blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final

from delaylog.extras import absent

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError as error:
    raise absent(error, "delaylog.client.job_systems.taskiq_broker", "taskiq") from None

from delaylog.client._sync.client import Client
from delaylog.client._sync.message import Message
from delaylog.client.errors import ClientError
from delaylog.client.job_systems.leases import LEASE_MS, LeaseKeeper
from delaylog.client.job_systems.topics import declare_topic, fields_of_task, topic_of

log = logging.getLogger("delaylog.job_systems")
WAIT_MS: Final = 1_000
"""Wait of one poll, and so the longest time that `shutdown` waits for it."""
PAUSE_S: Final = 1.0
"""Between polls that fail."""


class DelaylogBroker(AsyncBroker):
    """A broker that stores tasks in the delay log.

    Of the labels of a task it reads `delay` (seconds), `priority` (higher goes first) and
    `queue_name`.
    """

    def __init__(
        self,
        *endpoints: str,
        queue_name: str = "taskiq",
        lease_ms: int = LEASE_MS,
        **options: Any,
    ) -> None:
        """Endpoints and options are those of `Client`; without endpoints DELAYLOG_URL is used.

        `lease_ms`: how long after the death of a worker its tasks are delivered again.
        """
        super().__init__()
        self.queue_name = queue_name
        self.sdk = Client(*endpoints, **options)
        self._keeper = LeaseKeeper(self.sdk, lease_ms)
        self._created: set[str] = set()
        self._poll: asyncio.Future[list[Message]] | None = None

    async def shutdown(self) -> None:
        """Return the tasks that have not ended, and close the client."""
        await super().shutdown()
        if self._poll is not None:
            # Its thread goes on although its task was cancelled.
            await asyncio.wait([self._poll])
        await asyncio.to_thread(self._close)

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. A task of the same id that no worker has received is replaced."""
        labels: dict[str, Any] = message.labels
        fields = fields_of_task(message.task_id, message.task_name)
        if (delay_s := labels.get("delay")) is not None:
            fields["delay_ms"] = max(0, math.ceil(float(delay_s) * 1000))
        if (priority := labels.get("priority")) is not None:
            fields["priority"] = int(priority)
        queue = labels.get("queue_name") or self.queue_name

        def send() -> None:
            self._create_topic(queue)
            self.sdk.send(topic_of(queue), message.message, **fields)

        await asyncio.to_thread(send)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks of the queue that are due, one by one, so that a worker holds what it runs."""
        while True:
            try:
                self._poll = asyncio.ensure_future(asyncio.to_thread(self._receive))
                found = await asyncio.shield(self._poll)
            except ClientError as error:
                log.warning("no tasks were received, which is tried again: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            for message in found:
                ack = partial(asyncio.to_thread, self._keeper.ack, message)
                yield AckableMessage(data=message.body, ack=ack)

    def _receive(self) -> list[Message]:
        self._create_topic(self.queue_name)
        topic = topic_of(self.queue_name)
        found = self.sdk.receive(topic, wait_ms=WAIT_MS, lease_ms=self._keeper.lease_ms)
        self._keeper.hold(found)
        return found

    def _create_topic(self, queue: str) -> None:
        if queue not in self._created:
            declare_topic(self.sdk, topic_of(queue), for_s=self.sdk.timeout_s)
            self._created.add(queue)

    def _close(self) -> None:
        self._keeper.release_all()
        self._keeper.close()
        self.sdk.close()


__all__ = ["DelaylogBroker"]
