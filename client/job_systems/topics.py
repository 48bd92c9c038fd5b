"""Topics for the queues of job systems."""

from __future__ import annotations

import logging
import re
import time
from hashlib import sha256
from random import Random
from typing import Final

from delaylog.client.errors import ClientError, Forbidden, NotFound
from delaylog.client.models import TopicSettings
from delaylog.client.surface import QueueClient
from delaylog.client.wire.patience import Patience

log = logging.getLogger("delaylog.job_systems")
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
    client: QueueClient, topic: str, *, ttl_ms: int | None = None, for_s: float = 0.0
) -> None:
    """Create a topic that is ordered by priority, unless it exists.

    A task that is sent while a worker has the task of its id follows that one, so a retry may have
    the id of its task.

    While the broker is away this is repeated for `for_s` seconds. A caller without the right to
    create topics uses those that the administrator has made.
    """
    settings = TopicSettings("priority", merge="keep", merge_leased="successor", ttl_ms=ttl_ms)
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
