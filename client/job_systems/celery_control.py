"""What Celery's remote control cannot do: end a task in the broker while no worker runs."""

from __future__ import annotations

import logging
from typing import Any

from delaylog.client.job_systems import tasks
from delaylog.client.job_systems.tasks import topic_of
from delaylog.client.models import Changed

log = logging.getLogger("delaylog.job_systems")


def cancel_task(app: Any, task_id: str, *, queue: str | None = None) -> Changed:
    """Cancel a task of a Celery application that no worker has received, however far it is due.

    Each send of the id is cancelled.

    `queue`: where the task was sent; None: the application's default queue. Raises TooLate if a
    worker has the task (`app.control.revoke` may still reach it there) or it has ended, NotFound
    if the queue has no such task. The result backend then says REVOKED, as after `revoke`.
    """
    topic = topic_of(queue or app.conf.task_default_queue)
    with app.pool.acquire(block=True) as connection:
        changed = tasks.cancel_task(connection.default_channel.sdk, topic, task_id)
    try:
        app.backend.mark_as_revoked(task_id, reason="revoked", store_result=True)
    except Exception as error:
        # It is of any kind: each result backend has its own. The task has ended all the same.
        log.warning(
            "task %s was cancelled, which the result backend cannot say: %s", task_id, error
        )
    return changed
