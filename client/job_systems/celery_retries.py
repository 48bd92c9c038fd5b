"""Celery's `retry` in a worker, extended: a retry that cannot be stored does not lose its task.

`Task.retry` sends the task again. If that fails, Celery rejects the task: with late acks it is a
dead letter without a reason, and with early acks it is gone. `register_kombu_transport` imports
this module in workers only; the import replaces `Request.on_failure` by the function below, which
calls Celery's.

- The broker refuses the retry: the task is a dead letter, with the reason.
- The broker does not answer in time: a task with late acks is returned, and runs again. A task with
  early acks is lost, since Celery has acked it before it ran.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import Reject
from celery.worker.request import Request
from kombu.exceptions import OperationalError

from delaylog.client.errors import AWAY, ClientError
from delaylog.client.job_systems.kombu_channel import Channel

log = logging.getLogger("delaylog.job_systems")
_on_failure = Request.on_failure


def on_failure(self: Any, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
    """Handler called if the task raised an exception."""
    # Celery's wrapper of an exception that came from a child process.
    raised = getattr(exc_info.exception, "exc", exc_info.exception)
    channel = self.message.channel
    if isinstance(raised, Reject) and not raised.requeue and isinstance(channel, Channel):
        error = raised.reason
        if isinstance(error, (OperationalError, *AWAY)):
            raised.requeue = not self.acknowledged
        elif isinstance(error, ClientError):
            _give_up(self, channel, error)
    return _on_failure(self, exc_info, *args, **kwargs)


def _give_up(request: Any, channel: Channel, error: ClientError) -> None:
    try:
        channel.give_up(request.message, error, acked=request.acknowledged)
    except ClientError as second:
        log.error(
            "task %s is lost: its retry was refused (%s), and its copy was not stored: %s",
            request.id,
            error,
            second,
        )


Request.on_failure = on_failure
