"""A message of camellia's delay queue: its states, its JSON, the check whether it still lives.

The one rule: the life check is one function for every place that meets a message, so a message ends
the same way whether a reader, a consumer or a scan notices first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import IntEnum


class Status(IntEnum):
    """1 to 3 live, 4 to 7 have ended."""

    WAITING = 1
    READY = 2
    CONSUMING = 3
    CONSUMED = 4
    EXPIRED = 5
    """Its time to live ended without a delivery."""
    EXHAUSTED = 6
    """Its retries, or its time to live, ended after a delivery."""
    DELETED = 7


@dataclass(frozen=True, slots=True)
class DelayMessage:
    """What is stored of a message; times are milliseconds since 1970."""

    topic: str
    msg_id: str
    msg: str
    produce_time: int
    trigger_time: int
    expire_time: int
    max_retry: int
    retry: int
    """Deliveries so far."""
    status: int
    """As stored. A scan that makes a message ready leaves it at 1, as the original does: writing
    it there could overwrite what a consumer wrote meanwhile."""

    @property
    def ended(self) -> bool:
        """Whether it is past delivery by its status alone."""
        return self.status not in (Status.WAITING, Status.READY, Status.CONSUMING)


_MEMBERS = {
    "topic": "topic",
    "msg_id": "msgId",
    "msg": "msg",
    "produce_time": "produceTime",
    "trigger_time": "triggerTime",
    "expire_time": "expireTime",
    "max_retry": "maxRetry",
    "retry": "retry",
    "status": "status",
}


def encode(message: DelayMessage) -> str:
    """The text that is stored."""
    members = {name: getattr(message, field) for field, name in _MEMBERS.items()}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def decode(stored: str) -> DelayMessage:
    """A stored text; members that are missing are 0 or empty. Raise `ValueError` for nonsense."""
    members = json.loads(stored)
    if not isinstance(members, dict):
        raise ValueError("a stored message is a JSON object")

    def text(name: str) -> str:
        return str(members.get(name) or "")

    def number(name: str) -> int:
        return int(members.get(name) or 0)

    return DelayMessage(
        topic=text("topic"),
        msg_id=text("msgId"),
        msg=text("msg"),
        produce_time=number("produceTime"),
        trigger_time=number("triggerTime"),
        expire_time=number("expireTime"),
        max_retry=number("maxRetry"),
        retry=number("retry"),
        status=number("status"),
    )


def check_life(message: DelayMessage, now_ms: int, *, pulled: bool = False) -> DelayMessage:
    """The message as it is now. It differs from the one given if it is to be saved.

    Overdue ones end. A pull ends those without retries left and counts a delivery of the others.
    """
    if message.ended:
        return message
    if message.expire_time < now_ms:
        ended = Status.EXPIRED if message.retry == 0 else Status.EXHAUSTED
        return replace(message, status=int(ended))
    if not pulled:
        return message
    if message.retry > message.max_retry:
        return replace(message, status=int(Status.EXHAUSTED))
    return replace(message, status=int(Status.CONSUMING), retry=message.retry + 1)
