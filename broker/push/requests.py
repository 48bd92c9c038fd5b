"""A message as an HTTP request: CloudEvents 1.0, in binary or in structured mode.

In binary mode the body is the message's body and `ce-` headers have its attributes; in structured
mode one JSON document has all of them, so that a signature covers them too. `deliverat` is an
extension attribute with the due time. Headers of the message are forwarded under a prefix that
nothing else uses, percent-encoded, so that no header can replace or inject another. The trace
context of the send is in attributes: the HTTP headers of its names would make a delivery, perhaps a
year later, a part of that trace.

Specification: CloudEvents 1.0.2, its HTTP binding (3.1.3.2: encoding of values), JSON format, and
extension for distributed tracing.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

import orjson
from multidict import istr

from delaylog.broker.calls.request_ids import TRACEPARENT, TRACESTATE
from delaylog.broker.engine.schedules.runner import is_firing
from delaylog.contract.calls.targets import STRUCTURED

HEADER_PREFIX: Final = "delaylog-header-"
EVENT_TYPE: Final = "delaylog.message"
JSON: Final = "application/json"
STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=utf-8"
OCTETS: Final = "application/octet-stream"
_ATTRIBUTES: Final = (
    *("specversion", "id", "source", "type", "deliverat", "attempt"),
    *("subject", "partitionkey", "tags"),
    *(TRACEPARENT, TRACESTATE),
)
_NAMES: Final = {name: istr(f"ce-{name}") for name in _ATTRIBUTES}
"""Header names as aiohttp compares them, so that it does not convert them for each push."""
_CONTENT_TYPE: Final = istr("content-type")
_JSON_BEGINS: Final = frozenset(b'{["-0123456789tfn \t\r\n')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VISIBLE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that the HTTP binding leaves as they are."""
_PLAIN: Final = re.compile(r"[!#$&-~]*")
"""Most values, which need no encoding."""
_MEDIA_TYPE: Final = re.compile(
    r"[\w.+-]+/[\w.+-]+([ \t]*;[ \t]*[\w-]+=(\"[\w .,:/+-]*\"|[\w.+-]+))*", re.ASCII
)


class PushedMessage(NamedTuple):
    """What a push says of a message."""

    id: str
    """The id by which receivers recognise it; see `event_id`."""
    own_id: str
    """The id that its sender gave it, or empty."""
    deliver_at_ms: int
    attempts: int
    """Number of this attempt, from 1."""
    key: str
    tags: list[str]
    headers: dict[str, str]
    body: bytes


class PushRequest(NamedTuple):
    """Headers, in order, and the body of a POST."""

    headers: list[tuple[str, str]]
    body: bytes


def event_id(ref: str, own_id: str, headers: dict[str, str], source: str) -> str:
    """The id that receivers recognise a message by, the same in every attempt: the broker's id of
    the message; of a firing, one of its topic, schedule and instant. So a copy of the broker, from
    a backup, gives the same id to the same instant.
    """
    if "schedule" in headers and is_firing(own_id, headers):
        return "firing_" + sha256(f"{source}/{own_id}".encode()).hexdigest()[:32]
    return ref


def make_request(message: PushedMessage, source: str, mode: str) -> PushRequest:
    """The request of a message; `source` is the URI reference that names its topic."""
    media_type = _media_type(message)
    attributes = {
        "specversion": "1.0",
        "id": message.id,
        "source": source,
        "type": EVENT_TYPE,
        "deliverat": rfc3339(message.deliver_at_ms),
        "attempt": message.attempts,
    }
    if message.own_id:
        attributes["subject"] = message.own_id
    if message.key:
        attributes["partitionkey"] = message.key
    if message.tags:
        attributes["tags"] = ",".join(message.tags)
    forwarded = []
    for given, value in message.headers.items():
        name = given.lower()
        if name in (TRACEPARENT, TRACESTATE):
            attributes[name] = value
        elif name != "content-type":
            forwarded.append((HEADER_PREFIX + quote(name, safe=""), encoded(value)))
    if mode == STRUCTURED:
        document = {**attributes, "datacontenttype": media_type, **_data(message.body, media_type)}
        return PushRequest([(_CONTENT_TYPE, STRUCTURED_TYPE), *forwarded], orjson.dumps(document))
    of_event = [(_NAMES[name], encoded(str(value))) for name, value in attributes.items()]
    return PushRequest([(_CONTENT_TYPE, media_type), *of_event, *forwarded], message.body)


def encoded(text: str) -> str:
    """A header value: spaces, quotes and what is not ASCII are percent-encoded."""
    if _PLAIN.fullmatch(text):
        return text
    return quote(text, safe=_VISIBLE)


def rfc3339(time_ms: int) -> str:
    """A Unix time in ms as text; times after the year 9999 are shown as its end."""
    seconds, ms = divmod(time_ms, 1_000)
    text = _second(seconds)
    return f"{text}.{ms:03}Z" if text else "9999-12-31T23:59:59.999Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    """Messages that are pushed together are due together. Empty after the year 9999."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    except OverflowError:
        return ""


def _media_type(message: PushedMessage) -> str:
    """The type that the sender gave in a header `content-type`, else one that fits the body."""
    for name, value in message.headers.items():
        if name.lower() == "content-type" and _MEDIA_TYPE.fullmatch(value):
            return value
    if _is_json(message.body):
        return JSON
    return "text/plain; charset=utf-8" if _is_text(message.body) else OCTETS


def _data(body: bytes, media_type: str) -> dict[str, object]:
    """The event's data as a member of the JSON document."""
    essence = media_type.partition(";")[0].strip().lower()
    if essence == JSON or essence.endswith("+json"):
        if _is_json(body):
            return {"data": orjson.Fragment(body)}
        # As `data` it would be read as a JSON string.
    elif essence != OCTETS and _is_text(body):
        return {"data": body.decode()}
    return {"data_base64": base64.b64encode(body).decode()}


def _is_json(body: bytes) -> bool:
    if not body or body[0] not in _JSON_BEGINS:
        # Most texts, without the costs of an error.
        return False
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
