"""Topics for the queues of job systems, and what of a task the fields of its message can hold."""

from __future__ import annotations

import logging
import re
import time
from hashlib import sha256
from random import Random
from typing import Final

from delaylog.client.errors import ClientError, Forbidden, NotFound
from delaylog.client.keywords import SendKeywords
from delaylog.client.models import TopicSettings
from delaylog.client.surface import QueueClient
from delaylog.client.wire.patience import Patience
from delaylog.storage.messages.message_fields import ID_BYTES_MAX, ID_PATTERN, TAG_BYTES_MAX

log = logging.getLogger("delaylog.job_systems")
NAME_CHARS_MAX: Final = 200
_LEGAL: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]")
_ID: Final = re.compile(ID_PATTERN)
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
    client: QueueClient, topic: str, *, ttl_ms: int | None = None, for_s: float = 0.0
) -> None:
    """Create a topic that is ordered by priority, unless it exists.

    While the broker is away this is repeated for `for_s` seconds. A caller without the right to
    create topics uses those that the administrator has made.
    """
    patience = Patience(for_s, time.monotonic, Random())
    while True:
        try:
            _create(client, topic, TopicSettings("priority", merge="replace", ttl_ms=ttl_ms))
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


def fields_of_task(task_id: object, name: object) -> SendKeywords:
    """The fields of a task's message: its id, and its name as the tag, as far as they are legal.

    A retry has the id of the task. It replaces a message that is still to come, and follows one
    that is under lease.
    """
    fields = SendKeywords(tags=tags_of(name))
    if (own := id_of(task_id)) is not None:
        fields["id"], fields["merge"] = own, "replace"
    return fields


def id_of(task_id: object) -> str | None:
    """The id of a task as the id of its message, or None if it cannot be one."""
    if not isinstance(task_id, str) or not _ID.fullmatch(task_id):
        return None
    return task_id if len(task_id.encode()) <= ID_BYTES_MAX else None


def tags_of(name: object) -> list[str]:
    """The name of a task as the tag of its message; none if it cannot be one."""
    if not isinstance(name, str) or not name or "\n" in name:
        return []
    return [name] if len(name.encode()) <= TAG_BYTES_MAX else []
