"""Tasks as messages: the topic of a queue, the id of a task, each send of it, refused retries.

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
from datetime import timedelta
from hashlib import sha256
from itertools import chain
from random import Random
from threading import Thread
from typing import Final

from delaylog.client._sync.message import Message
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import (
    ApiError,
    ClientError,
    Forbidden,
    NotFound,
    NotReached,
    NotReady,
    TooLate,
    api_error,
)
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import Changed, TopicSettings
from delaylog.client.wire.patience import CERTAIN, Patience
from delaylog.contract.message_fields import ID_BYTES_MAX, ID_PATTERN, TAG_BYTES_MAX

# ---------------------------------------------------------------------------------------- tasks

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


# ----------------------------------------------------------------------------- topics of queues

NAME_CHARS_MAX: Final = 200
_LEGAL: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]")
_DIGEST_CHARS: Final = 12


def topic_of(queue: str) -> str:
    """The topic that stores the messages of a queue: a legal name is used as it is.

    In other names each illegal character becomes `-`, and a digest of the name follows, so that two
    queues never share a topic: `celery@a.pidbox` is stored in `celery-a.pidbox.` and 12 digits.
    """
    if _LEGAL.fullmatch(queue):
        return queue
    digest = sha256(queue.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_ILLEGAL.sub('-', queue)[: NAME_CHARS_MAX - 1 - _DIGEST_CHARS]}.{digest}"


def declare_topic(
    client: QueueClient, topic: str, *, ttl: timedelta | None = None, for_s: float = 0.0
) -> None:
    """Create a topic that is ordered by priority, unless it exists.

    A task that is sent while a worker has the task of its id follows that one, so a retry may have
    the id of its task.

    While the broker is away this is repeated for `for_s` seconds. A caller without the right to
    create topics uses those that the administrator has made.
    """
    settings = TopicSettings("priority", merge="keep", merge_leased="successor", ttl=ttl)
    patience = Patience(for_s, time.monotonic, Random())
    while True:
        try:
            _create(client, topic, settings)
            return
        except Forbidden as error:
            log.info("topic %s is used with the settings that it has: %s", topic, error)
            return
        except ClientError as error:
            time.sleep(patience.pause_s(error))


def _create(client: QueueClient, topic: str, settings: TopicSettings) -> None:
    """Create a topic, unless it exists. It may be repeated."""
    try:
        client.get_topic(topic)
    except NotFound:
        client.put_topic(topic, settings)
