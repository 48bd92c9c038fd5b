"""What Celery's remote control cannot do: end a task in the broker, where no worker has it."""

from __future__ import annotations

from typing import Any

from delaylog.client.job_systems.topics import topic_of
from delaylog.client.models import Changed


def cancel_task(app: Any, task_id: str, *, queue: str | None = None) -> Changed:
    """Cancel a task of a Celery application that no worker has received, however far it is due.

    `queue`: where the task was sent; None: the application's default queue. Raises TooLate if a
    worker has the task (`app.control.revoke` may still reach it there) or it has ended, NotFound
    if the queue has no such task. The result backend is not told.
    """
    topic = topic_of(queue or app.conf.task_default_queue)
    with app.pool.acquire(block=True) as connection:
        changed: Changed = connection.default_channel.sdk.cancel(topic, task_id)
    return changed
