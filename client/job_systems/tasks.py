"""Tasks as messages: the id and the name of a task, each send of it, and retries that are refused.

A job system uses a task id as a label: it may send one id several times, and each send runs. An id
of a message is unique among the messages of its topic that no consumer has. So the first send of a
task has the task's id, and a further one, while the first still waits, has an id of the broker and
the task's id as a second tag. A retry, which is sent while a worker has the task, has the task's id
and is delivered after the task has been acked.

A job system acks a task after it has sent the task's retry. If the broker refuses the retry, a copy
of the task takes its place: the worker that receives the copy rejects it, with the reason. The
worker runs the copy only after somebody has replayed it. While a quota or the disk leaves no room
for the copy either, a thread sends it again.
"""

from __future__ import annotations

import logging
import math
import re
import time
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from threading import Thread
from typing import Final

from delaylog.client._sync.message import Message
from delaylog.client.errors import (
    ApiError,
    ClientError,
    NotFound,
    NotReached,
    NotReady,
    TooLate,
    api_error,
)
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import Changed
from delaylog.client.surface import QueueClient
from delaylog.client.wire.patience import CERTAIN
from delaylog.contract.message_fields import ID_BYTES_MAX, ID_PATTERN, TAG_BYTES_MAX

log = logging.getLogger("delaylog.job_systems")
REFUSED_HEADER: Final = "delaylog-refused-retry"
"""The header of a copy that becomes a dead letter; its value is the reason."""
ROOM_PAUSE_S: Final = 1.0
"""Between tries to send a copy for which there is no room."""
_ID: Final = re.compile(ID_PATTERN)
_NOT_BEGUN: Final = ("waiting", "ready")


def send_task(
    client: QueueClient, topic: str, body: str | bytes, fields: SendKeywords, task_id: object
) -> None:
    """Send a task. A living message of the same task id stays as it is. Raises ClientError."""
    own = id_of(task_id)
    if own is not None:
        first = SendKeywords(**{**fields, "id": own, "merge": "keep"})
        if client.send(topic, body, **first).result != "kept":
            return
    further = SendKeywords(**fields)
    if isinstance(task_id, str):
        further["tags"] = [*(fields.get("tags") or ()), id_tag(task_id)]
    client.send(topic, body, **further)


def cancel_task(client: QueueClient, topic: str, task_id: str) -> Changed:
    """Cancel every send of a task that no worker has received.

    Returns the result of the first one. Raises TooLate if workers have received all of them, and
    NotFound if the topic has none.
    """
    done: list[Changed] = []
    refusal: ApiError = api_error(
        404, {"code": "unknown", "detail": f"topic {topic} has no task {task_id!r}"}
    )
    ids = [] if id_of(task_id) is None else [task_id]
    further = client.browse(topic, state=_NOT_BEGUN, tag=id_tag(task_id))
    for message_id in chain(ids, (info.id for info in further)):
        try:
            done.append(client.cancel(topic, message_id))
        except (TooLate, NotFound) as error:
            refusal = error if isinstance(error, TooLate) else refusal
    if not done:
        raise refusal
    return done[0]


def send_refused_copy(
    client: QueueClient, topic: str, body: str | bytes, fields: SendKeywords, error: Exception
) -> None:
    """Send the copy of a task whose retry was refused. Raises ClientError.

    Where there is no room for it, this returns, so that the worker goes on and makes room.
    """
    log.error(
        "a retry of a task in topic %s was refused, the task becomes a dead letter: %s",
        topic,
        error,
    )
    copy = SendKeywords(**{**fields, "headers": {REFUSED_HEADER: reason_of_refusal(error)}})
    if not isinstance(error, CERTAIN):
        with suppress(*CERTAIN):
            client.send(topic, body, **copy)
            return
    waiting = (client, topic, body, copy)
    Thread(target=_send_once_there_is_room, args=waiting, name="refused-retry", daemon=True).start()


def _send_once_there_is_room(
    client: QueueClient, topic: str, body: str | bytes, copy: SendKeywords
) -> None:
    while True:
        try:
            client.send(topic, body, **copy)
            return
        except (*CERTAIN, NotReached, NotReady):
            time.sleep(ROOM_PAUSE_S)
        except ClientError as error:
            log.error("a task in topic %s is lost: its copy was not stored: %s", topic, error)
            return


def refusal_of(client: QueueClient, message: Message) -> str | None:
    """Why a received message is to be rejected at once, or None if it is to run."""
    reason = message.headers.get(REFUSED_HEADER)
    if reason is None:
        return None
    info = client.get(message.topic, message.id)
    # A replay gives it a later due time.
    return reason if info.sent_at_ms == message.deliver_at_ms else None


def reason_of_refusal(error: Exception) -> str:
    """The reason of a dead letter whose retry was refused."""
    return f"its retry was refused: {error}"


def whole_ms(delay: float) -> int:
    """A delay in milliseconds, rounded up. Raises ValueError and TypeError with the value."""
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(f"delay is a number of milliseconds, not {delay!r}")
    if not math.isfinite(delay):
        raise ValueError(f"delay is a finite number of milliseconds, not {delay!r}")
    return max(0, math.ceil(delay))


def task_tag_of(message: Message) -> str | None:
    """The `id_tag` of the task in a received message; None if its task has no id."""
    if not message.id.startswith("~"):
        return id_tag(message.id)
    return message.tags[-1] if message.tags else None


def id_of(task_id: object) -> str | None:
    """The id of a task as the id of its message, or None if it cannot be one."""
    if not isinstance(task_id, str) or not _ID.fullmatch(task_id):
        return None
    return task_id if len(task_id.encode()) <= ID_BYTES_MAX else None


def id_tag(task_id: str) -> str:
    """The tag of the further sends of a task: its id, or the digest of an id that is no tag."""
    if tags_of(task_id):
        return task_id
    return f"sha256:{sha256(task_id.encode()).hexdigest()[:32]}"


def tags_of(name: object) -> list[str]:
    """The name of a task as the tag of its message; none if it cannot be one."""
    if not isinstance(name, str) or not name or "\n" in name:
        return []
    return [name] if len(name.encode()) <= TAG_BYTES_MAX else []
