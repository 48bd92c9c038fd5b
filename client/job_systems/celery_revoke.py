"""Celery's `revoke` in a worker, extended: it ends the tasks that wait in the broker, too.

Celery's own keeps revoked ids in the memory of the workers, for three hours at most and until they
stop. A task that is due later would run all the same. `register_kombu_transport` imports this
module in workers only; the import replaces two of the worker's remote control commands by those
below, which call Celery's first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery.worker import control

from delaylog.client.errors import ClientError, NotFound, TooLate
from delaylog.client.job_systems.kombu_channel import Channel
from delaylog.client.job_systems.tasks import cancel_task
from delaylog.client.job_systems.topics import topic_of

log = logging.getLogger("delaylog.job_systems")
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
