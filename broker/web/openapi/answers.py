"""JSON schemas of what is answered, and of topic settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import (
    BACKOFF_BOUNDS,
    SETTING_BOUNDS,
    Backoff,
    TopicSettings,
)
from delaylog.broker.web.camellia.monitor import REQUEST_KINDS
from delaylog.broker.web.camellia.topic_info import STRETCH_NAMES
from delaylog.broker.web.members import Schema
from delaylog.storage.batch import MERGE_MODES
from delaylog.storage.layout import Cause, MessageState

_INT: Final[Schema] = {"type": "integer"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_STATES: Final = [
    state.name.lower()
    for state in MessageState
    if state not in (MessageState.NONE, MessageState.MOVED)
]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(optional: dict[str, Schema] | None = None, /, **members: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
        "additionalProperties": False,
    }


def _body(**members: Schema) -> Schema:
    """Members of a message that has a body, as text or as base64."""
    schema = _object(
        {"body": _TEXT, "body_base64": {"type": "string", "contentEncoding": "base64"}}, **members
    )
    schema["oneOf"] = [{"required": ["body"]}, {"required": ["body_base64"]}]
    return schema


_CONTENT: Final[dict[str, Schema]] = {
    "id": _TEXT,
    "deliver_at_ms": _INT,
    "attempts": _COUNT,
    "priority": _INT,
    "tags": _list(_TEXT),
    "key": _TEXT_OR_NULL,
    "headers": {"type": "object", "additionalProperties": _TEXT},
}
_LEASED: Final[dict[str, Schema]] = {
    "receipt": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "lease_until_ms": _INT,
}


def _sent(*results: str) -> Schema:
    return _object(id=_TEXT, deliver_at_ms=_INT, result={"enum": list(results)})


def _topic() -> dict[str, Schema]:
    counts = ("waiting", "ready", "leased", "acked", "expired", "dead", "deleted")
    return {"counts": _object(**dict.fromkeys(counts, _COUNT))}


def settings_schema(*, whole: bool) -> Schema:
    """Settings of a topic: as they are put (any part), or as they are answered (whole)."""
    defaults = TopicSettings().as_dict()
    properties: dict[str, Schema] = {"merge": {"enum": list(MERGE_MODES)}}
    for name, (low, high) in SETTING_BOUNDS.items():
        properties[name] = {"type": "integer", "minimum": low, "maximum": high}
    properties["backoff"] = {
        "type": "object",
        "properties": {
            name: {
                "type": "integer" if name.endswith("_ms") else "number",
                "minimum": low,
                "maximum": high,
            }
            for name, (low, high) in BACKOFF_BOUNDS.items()
        },
        "additionalProperties": False,
    }
    assert properties.keys() == {field.name for field in fields(TopicSettings)}
    if whole:
        properties["backoff"]["required"] = [field.name for field in fields(Backoff)]
    else:
        for name, schema in properties.items():
            schema["default"] = defaults[name]
    settings: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**settings, "required": list(properties)} if whole else settings


def _problem() -> Schema:
    schema = _object(type=_TEXT, title=_TEXT, status=_INT, code=_TEXT, detail=_TEXT)
    schema["additionalProperties"] = True
    return schema


def _gap() -> Schema:
    return _object(topic=_TEXT, count=_COUNT, avg={"type": "number"}, max=_COUNT)


def answer_schemas(limits: Limits) -> dict[str, Schema]:
    """All of them by name."""
    topic = _object(topic=_TEXT, namespace=_TEXT, settings=_ref("WholeSettings"), **_topic())
    clock = {"now_ms": _INT, "wall_ms": _INT, "held_ms": _COUNT, "steps": _COUNT}
    done: dict[str, Any] = {"const": "done"}
    return {
        "Settings": settings_schema(whole=False),
        "WholeSettings": settings_schema(whole=True),
        "Topic": topic,
        "Topics": _object(topics=_list(_ref("Topic"))),
        "Done": _object(result=done),
        "Stats": _object(
            {
                "delay_buckets": _list(
                    _object(from_ms=_COUNT, to_ms={"type": ["integer", "null"]}, count=_COUNT)
                )
            },
            topic=_TEXT,
            **_topic(),
            sent=_COUNT,
            delivered=_COUNT,
            now_ms=_INT,
        ),
        "Sent": {
            "oneOf": [
                _sent("created", "kept", "replaced"),
                _object(messages=_list(_sent("created", "kept", "replaced", "rejected"))),
            ]
        },
        "Received": _object(
            messages={**_list(_body(**_CONTENT, **_LEASED)), "maxItems": limits.receive_max},
            now_ms=_INT,
        ),
        "Peeked": _object(
            messages={**_list(_body(**_CONTENT)), "maxItems": limits.receive_max}, now_ms=_INT
        ),
        "Settled": _object(results=_list({"enum": ["done", "gone", "unknown"]})),
        "Controlled": _object(result=done, state={"enum": _STATES}, deliver_at_ms=_INT),
        "ControlledMany": _object(
            results=_list(
                _object(
                    {"state": {"enum": _STATES}}, result={"enum": ["done", "too_late", "unknown"]}
                )
            )
        ),
        "Job": _job(),
        "Jobs": _object(jobs=_list(_ref("Job"))),
        "Message": _message(),
        "Health": _object(status=_TEXT),
        "Ready": _object(status=_TEXT, disk_full={"type": "boolean"}, clock_held_ms=_COUNT),
        "Clock": _object(**clock),
        "AcceptedClock": _object(accepted_ms={"type": "integer", "maximum": 0}, **clock),
        "About": _object(name=_TEXT, topics=_COUNT),
        "Problem": _problem(),
        **_camellia(),
    }


def _job() -> Schema:
    int_or_null: Schema = {"type": ["integer", "null"]}
    return _object(
        job=_TEXT,
        namespace=_TEXT_OR_NULL,
        topic=_TEXT_OR_NULL,
        action={"enum": ["cancel", "reschedule", "replay"]},
        filter=_object(
            {"state": _TEXT, "due_from": _INT, "due_to": _INT, "tag": _TEXT, "key": _TEXT}
        ),
        rate=int_or_null,
        deliver_at_ms=int_or_null,
        state={"enum": ["running", "done", "cancelled", "failed"]},
        **dict.fromkeys(("scanned", "matched", "done", "too_late"), _COUNT),
        begun_ms=_INT,
        ended_ms=int_or_null,
    )


def _message() -> Schema:
    causes = [cause.name.lower() for cause in Cause]
    schema = _body(
        **_CONTENT,
        topic=_TEXT,
        namespace=_TEXT,
        state={"enum": _STATES},
        cause={"enum": [*causes, None]},
        sent_at_ms=_INT,
        expires_at_ms={"type": ["integer", "null"]},
        max_retry=_COUNT,
    )
    schema["properties"] |= {"lease_until_ms": _INT, "ended_at_ms": _INT}
    return schema


def _camellia() -> dict[str, Schema]:
    sizes = dict.fromkeys(("waitingQueueSize", "readyQueueSize", "ackQueueSize"), _COUNT)
    stretches = dict.fromkeys(STRETCH_NAMES, _COUNT)
    gaps = ("pullMsgTimeGapStatsList", "readyQueueTimeGapStatsList")
    return {
        "CamelliaMessage": _object(
            topic=_TEXT,
            msgId=_TEXT,
            msg=_TEXT,
            produceTime=_INT,
            triggerTime=_INT,
            expireTime=_INT,
            maxRetry=_COUNT,
            retry=_COUNT,
            status={"type": "integer", "minimum": 1, "maximum": 7},
        ),
        "CamelliaTopicInfo": _object(topic=_TEXT, waitingQueueInfo=_object(**stretches), **sizes),
        "CamelliaRequests": _object(topic=_TEXT, **dict.fromkeys(REQUEST_KINDS, _COUNT)),
        "CamelliaMonitorData": _object(
            requestStatsList=_list(_ref("CamelliaRequests")),
            **dict.fromkeys(gaps, _list(_gap())),
        ),
        "CamelliaHealth": _object(code={"enum": [200, 500]}),
    }
