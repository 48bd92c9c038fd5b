"""Celery's `retry` and `revoke` in a worker, extended: both reach the broker.

`register_kombu_transport` imports this module in workers only. The import replaces
`Request.on_failure` and two of the worker's remote control commands by the functions below, which
call Celery's.

`Task.retry` sends the task again. If that fails, Celery rejects the task: with late acks it is a
dead letter without a reason, and with early acks it is gone.

- The broker refuses the retry: the task is a dead letter, with the reason.
- The broker does not answer in time: a task with late acks is returned, and runs again. A task with
  early acks is lost, since Celery has acked it before it ran.

Celery's own `revoke` keeps revoked ids in the memory of the workers, for three hours at most and
until they stop. A task that is due later would run all the same, so tasks that wait in the broker
are cancelled there, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery.exceptions import Reject
from celery.worker import control
from celery.worker.request import Request
from kombu.exceptions import OperationalError

from delaylog.client.errors import AWAY, ClientError, NotFound, TooLate
from delaylog.client.job_systems.kombu_channel import Channel
from delaylog.client.job_systems.tasks import cancel_task, topic_of

# ---------------------------------------------------------------- retries that cannot be stored

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


# -------------------------------------------------------- revoked tasks that wait in the broker

_revoke = control.revoke


def revoke(state: Any, task_id: Any, *args: Any, **kwargs: Any) -> Any:
    """Revoke task by task id (or list of ids)."""
    answer = _revoke(state, task_id, *args, **kwargs)
    end_in_the_broker(state, [task_id] if isinstance(task_id, str) else task_id or ())
    return answer


def terminate(state: Any, signal: Any, task_id: Any, **_: Any) -> Any:
    """Terminate task by task id (or list of ids)."""
    return revoke(state, task_id, terminate=True, signal=signal)


def end_in_the_broker(state: Any, task_ids: Iterable[str]) -> None:
    """Cancel those tasks of the worker's queues that no worker has received.

    Every worker does this, so most of them find nothing. A worker of another broker does nothing.
    """
    channel = state.consumer.task_consumer.channel
    if not isinstance(channel, Channel):
        return
    ids = [task_id for task_id in task_ids if isinstance(task_id, str)]
    for queue in list(state.app.amqp.queues.consume_from):
        for task_id in ids:
            try:
                with suppress(NotFound, TooLate):
                    cancel_task(channel.sdk, topic_of(queue), task_id)
                    log.info("task %s of queue %s is revoked: it was cancelled", task_id, queue)
                    if (events := state.consumer.event_dispatcher) is not None:
                        facts = {"terminated": False, "signum": None, "expired": False}
                        events.send("task-revoked", uuid=task_id, **facts)
            except ClientError as error:
                log.warning("task %s of queue %s was not cancelled: %s", task_id, queue, error)


# Celery's decorators, without types; `celery control --list` shows what the functions' texts say.
control.control_command(variadic="task_id", signature="[id1 [id2 [... [idN]]]]")(revoke)
control.control_command(
    variadic="task_id", args=[("signal", str)], signature="<signal> [id1 [id2 [... [idN]]]]"
)(terminate)
