"""Kombu's messages as messages of a topic, and back.

The body is kombu's message as JSON. What the broker can use is repeated as fields: the task's name
as tag, the ETA as due time, the priority, and the expiration as ttl. The broker
waits for an ETA that has a time zone, so the worker finds none in the message. It waits by itself
for an ETA without one, because only the application knows which zone is meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kombu.utils.json import dumps, loads

from delaylog.client._sync.message import Message
from delaylog.client.job_systems.tasks import tags_of
from delaylog.client.keywords import SendKeywords

PRIORITY_MAX: Final = 9
"""Of kombu's virtual transports; the least is 0."""


def due_ms(headers: Mapping[str, Any]) -> int | None:
    """The Unix time in ms at which a task is due, or None if the broker shall not wait for it."""
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        when = datetime.fromisoformat(eta)
    except ValueError:
        # The worker reports it.
        return None
    return None if when.tzinfo is None else max(0, math.ceil(when.timestamp() * 1000))


def fields_of(payload: Mapping[str, Any]) -> SendKeywords:
    """The keywords with which a message of kombu is sent."""
    fields = SendKeywords()
    headers: Mapping[str, Any] = payload.get("headers") or {}
    properties: Mapping[str, Any] = payload["properties"]
    if "task" in headers:
        fields["tags"] = tags_of(headers["task"])
    if (due := due_ms(headers)) is not None:
        fields["deliver_at_ms"] = due
    if priority := priority_of(properties):
        fields["priority"] = priority
    if (expiration := properties.get("expiration")) is not None:
        fields["ttl_ms"] = int(expiration)
    return fields


def task_id_of(payload: Mapping[str, Any]) -> object:
    """The id of the task in a message of kombu; None for what is no task."""
    headers: Mapping[str, Any] = payload.get("headers") or {}
    return headers.get("id") if "task" in headers else None


def priority_of(properties: Mapping[str, Any]) -> int:
    """The priority, 0 to 9; higher goes first, as with RabbitMQ."""
    priority = properties.get("priority")
    return min(max(priority, 0), PRIORITY_MAX) if isinstance(priority, int) else 0


def body_of(payload: Mapping[str, Any]) -> str:
    """The body with which a message of kombu is sent."""
    text: str = dumps(payload)
    return text


def payload_of(message: Message) -> dict[str, Any]:
    """The message of kombu that was sent. Its delivery tag is new with each delivery."""
    payload: dict[str, Any] = loads(message.text)
    properties = payload["properties"]
    properties["delivery_tag"] = message.receipt
    properties.setdefault("delivery_info", {})["redelivered"] = message.attempts > 1
    headers = payload.get("headers") or {}
    if due_ms(headers) is not None:
        headers["eta"] = None
    return payload
