"""A taskiq broker on the delay log: its queue is a topic, delays are due times, acks are leases.

The calls of the client for threads are made in threads, so that leases are extended even while a
task blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, Final

from delaylog.extras import absent

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError as error:
    raise absent(error, "delaylog.client.job_systems.taskiq_broker", "taskiq") from None

from delaylog.client._sync.client import Client
from delaylog.client._sync.message import Message
from delaylog.client.errors import AWAY, ClientError
from delaylog.client.job_systems.leases import LEASE, LeaseKeeper
from delaylog.client.job_systems.tasks import (
    cancel_task,
    declare_topic,
    id_tag,
    reason_of_refusal,
    refusal_of,
    send_refused_copy,
    send_task,
    tags_of,
    task_tag_of,
    topic_of,
    whole_ms,
)
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import Changed
from delaylog.client.wire.times import span_of

log = logging.getLogger("delaylog.job_systems")
WAIT: Final = timedelta(seconds=1)
"""Wait of one poll, and so the longest time that `shutdown` waits for it."""
PAUSE_S: Final = 1.0
"""Between polls that fail."""
DELAY_LABEL: Final = "delaylog_delay_s"
PRIORITY_LABEL: Final = "delaylog_priority"
RETRY_DELAY_LABEL: Final = "delay"
_acked: ContextVar[Message | None] = ContextVar("_acked", default=None)
"""The task that this asyncio task runs, once it is acked."""


class DelaylogBroker(AsyncBroker):
    """A broker that stores tasks in the delay log.

    Of the labels of a task it reads `delaylog_delay_s`, `delaylog_priority` (higher goes first) and
    `queue_name`, and `delay` (seconds) of a retry, which `SmartRetryMiddleware` sets. All other
    labels belong to the application and its middleware.
    """

    def __init__(
        self,
        *endpoints: str,
        queue_name: str = "taskiq",
        lease: timedelta = LEASE,
        **options: Any,
    ) -> None:
        """Endpoints and options are those of `Client`; without endpoints DELAYLOG_URL is used.

        `lease`: how long after the death of a worker its tasks are delivered again.
        """
        super().__init__()
        self.queue_name = queue_name
        self.sdk = Client(*endpoints, **options)
        self._keeper = LeaseKeeper(self.sdk, lease)
        self._created: set[str] = set()
        self._poll: asyncio.Future[list[Message]] | None = None
        self._running: defaultdict[str, list[Message]] = defaultdict(list)
        """Received tasks that are not acked, by `task_tag_of`."""

    async def shutdown(self) -> None:
        """Return the tasks that have not ended, and close the client."""
        await super().shutdown()
        if self._poll is not None:
            # Its thread goes on although its task was cancelled.
            await asyncio.wait([self._poll])
        await asyncio.to_thread(self._close)

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task, also one whose id was sent before.

        If it is the retry of a task that this worker runs, and cannot be stored, the task is not
        lost: a refusal makes it a dead letter, and without an answer it keeps its lease.
        """
        try:
            queue, fields = _route(message.labels, self.queue_name)
            fields["tags"] = tags_of(message.task_name)
            await asyncio.to_thread(self._send, queue, message, fields)
        except Exception as error:
            if _is_retry(message.labels):
                await asyncio.to_thread(self._keep, message.task_id, error)
            raise

    async def cancel(self, task_id: str, queue_name: str | None = None) -> Changed:
        """Cancel every send of a task that no worker has received.

        Raises TooLate if workers have received all of them, and NotFound if there is none.
        """
        topic = topic_of(queue_name or self.queue_name)
        return await asyncio.to_thread(cancel_task, self.sdk, topic, task_id)

    def _send(self, queue: str, message: BrokerMessage, fields: SendKeywords) -> None:
        self._create_topic(queue)
        send_task(self.sdk, topic_of(queue), message.message, fields, message.task_id)

    def _keep(self, task_id: str, error: Exception) -> None:
        """Do not lose a task of this worker whose retry was not stored."""
        no_answer = isinstance(error, AWAY)
        task = id_tag(task_id)
        if task in self._running:
            # taskiq does not say which of several tasks of one id has failed: each failure keeps
            # one of them.
            held, *left = self._running.pop(task)
            if left:
                self._running[task] = left
            if no_answer:
                self._keeper.leave(held)
            else:
                self._keeper.reject(held, reason_of_refusal(error))
        elif (acked := _acked.get()) is not None and not no_answer:
            # taskiq has acked it before it ran.
            fields = SendKeywords(tags=list(acked.tags[:1]))
            send_refused_copy(self.sdk, acked.topic, acked.body, fields, error)

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
                if (task := task_tag_of(message)) is not None:
                    self._running[task].append(message)
                yield AckableMessage(data=message.body, ack=partial(self._ack, message))

    async def _ack(self, message: Message) -> None:
        _acked.set(message)
        task = task_tag_of(message) or ""
        left = [each for each in self._running.pop(task, ()) if each is not message]
        if left:
            self._running[task] = left
        await asyncio.to_thread(self._keeper.ack, message)

    def _receive(self) -> list[Message]:
        self._create_topic(self.queue_name)
        topic = topic_of(self.queue_name)
        found = self.sdk.receive(topic, wait=WAIT, lease=self._keeper.lease)
        self._keeper.hold(found)
        try:
            return [message for message in found if not self._reject_refused(message)]
        except ClientError:
            # Nobody would settle them.
            self._keeper.release(found)
            raise

    def _reject_refused(self, message: Message) -> bool:
        """Whether the message was the copy of a task whose retry was refused."""
        if (reason := refusal_of(self.sdk, message)) is None:
            return False
        self._keeper.reject(message, reason)
        return True

    def _create_topic(self, queue: str) -> None:
        if queue not in self._created:
            declare_topic(self.sdk, topic_of(queue), for_s=self.sdk.timeout_s)
            self._created.add(queue)

    def _close(self) -> None:
        self._keeper.release_all()
        self._keeper.close()
        self.sdk.close()


def _is_retry(labels: Mapping[str, Any]) -> bool:
    """Whether middleware of taskiq sends the task again. Its labels count the retries."""
    return "_retries" in labels


def _route(labels: Mapping[str, Any], queue_name: str) -> tuple[str, SendKeywords]:
    """The queue of a task, and what its labels say of its message. Raises ValueError."""
    fields = SendKeywords()
    delay = RETRY_DELAY_LABEL if _is_retry(labels) else DELAY_LABEL
    if delay in labels:
        fields["delay"] = span_of(whole_ms(_number(labels, delay) * 1_000))
    if PRIORITY_LABEL in labels:
        priority = _number(labels, PRIORITY_LABEL)
        if not priority.is_integer():
            raise ValueError(f"label {PRIORITY_LABEL} is a whole number, not {priority}")
        fields["priority"] = int(priority)
    return labels.get("queue_name") or queue_name, fields


def _number(labels: Mapping[str, Any], label: str) -> float:
    try:
        number = float(labels[label])
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"label {label} is a number, not {labels[label]!r}")
    return number


__all__ = ["DelaylogBroker"]
