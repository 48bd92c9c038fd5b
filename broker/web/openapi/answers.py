"""JSON schemas of what is answered, and of topic settings."""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.calls.batch_sends import RESULT_NAMES
from delaylog.broker.cluster.operator_calls import ROLES
from delaylog.broker.engine.life import EVENTS
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.settings import SETTINGS, TopicSettings
from delaylog.broker.web.camellia.monitor import REQUEST_KINDS
from delaylog.broker.web.camellia.topic_info import STRETCH_NAMES
from delaylog.storage.layout import Cause, MessageState
from delaylog.storage.members import Schema
from delaylog.storage.transaction_frames import RESULTS

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


def _group() -> Schema:
    return _object(
        group=_TEXT,
        topic=_TEXT,
        namespace=_TEXT,
        ephemeral={"type": "boolean"},
        delivered=_COUNT,
        **_topic(),
    )


def _claim() -> dict[str, Schema]:
    states = ["making", "open", "acking", "acked", "releasing", "released", "expired", "purged"]
    return {
        "claim": _TEXT,
        "group": _TEXT,
        "n": _COUNT,
        "state": {"enum": states},
        "lease_until_ms": {"type": ["integer", "null"]},
    }


def settings_schema(limits: Limits, *, whole: bool) -> Schema:
    """Settings of a topic: as they are put (any part), or as they are answered (whole)."""
    schema = SETTINGS.schema(limits)
    if whole:
        return {**schema, "required": [member.name for member in SETTINGS.members]}
    for name, default in TopicSettings().as_dict().items():
        schema["properties"][name]["default"] = default
    return schema


def _problem() -> Schema:
    schema = _object(type=_TEXT, title=_TEXT, status=_INT, code=_TEXT, detail=_TEXT)
    schema["additionalProperties"] = True
    return schema


def _gap() -> Schema:
    return _object(topic=_TEXT, count=_COUNT, avg={"type": "number"}, max=_COUNT)


_NODE: Final[dict[str, Schema]] = {"node": _COUNT, "name": _TEXT, "http": _TEXT}
_EPOCH: Final = _object(counter=_COUNT, node=_COUNT)


def _cluster() -> Schema:
    maybe: Schema = {"type": ["integer", "null"]}
    text: Schema = {"type": ["string", "null"]}
    member = _object(
        **_NODE,
        peer=_TEXT,
        connected={"type": "boolean"},
        voter={"type": ["boolean", "null"]},
        removed={"type": "boolean"},
        match=maybe,
        lag_bytes=maybe,
        clock_ahead_ms=maybe,
        clock_uncertainty_ms=maybe,
        clock_off={"type": ["boolean", "null"]},
        announced_http=text,
        announced_peer=text,
        release=text,
        fit={"type": ["boolean", "null"]},
        unfit={"type": ["string", "null"]},
        sync_ms=maybe,
        priority=_COUNT,
        zone=_TEXT,
    )
    return _object(
        cluster=_TEXT,
        cluster_id={"type": ["string", "null"]},
        version=_COUNT,
        **_NODE,
        role={"enum": list(ROLES)},
        epoch={"oneOf": [_EPOCH, {"type": "null"}]},
        leader={"oneOf": [_object(**_NODE), {"type": "null"}]},
        log_end=_COUNT,
        durable=_COUNT,
        commit=_COUNT,
        applied=_COUNT,
        gate_age_ms=maybe,
        majority={"type": "boolean"},
        missing_voters=_list(_TEXT),
        copy_to=maybe,
        copy_from=maybe,
        release=_TEXT,
        feature_level=_COUNT,
        peer_tls={"type": "boolean"},
        connections_refused={"type": "object", "additionalProperties": _COUNT},
        clock_offset_ms=maybe,
        clock_stands_aside={"type": "boolean"},
        error={"type": ["string", "null"]},
        members=_list(member),
    )


def answer_schemas(limits: Limits) -> dict[str, Schema]:
    """All of them by name."""
    topic = _object(
        topic=_TEXT,
        namespace=_TEXT,
        settings=_ref("WholeSettings"),
        paused={"type": "boolean"},
        erasing={"type": "boolean"},
        groups=_list(_TEXT),
        **_topic(),
    )
    clock = {"now_ms": _INT, "wall_ms": _INT, "held_ms": _COUNT, "steps": _COUNT}
    done: dict[str, Any] = {"const": "done"}
    archive = {
        "hold": {"type": "boolean"},
        "released_through_ms": _COUNT,
        "archivable_through_ms": _COUNT,
        "hours": _COUNT,
        "oldest_ms": {"type": ["integer", "null"]},
    }
    return {
        "Settings": settings_schema(limits, whole=False),
        "WholeSettings": settings_schema(limits, whole=True),
        "Topic": topic,
        "Topics": _object(topics=_list(_ref("Topic")), cursor={"type": ["string", "null"]}),
        "Done": _object(result=done),
        "Group": _group(),
        "Groups": _object(groups=_list(_ref("Group"))),
        "Purged": _object(result=done, purged=_COUNT),
        "Paused": _object(result=done, paused={"type": "boolean"}),
        "Claim": _object(**_claim()),
        "Claims": _object(claims=_list(_ref("Claim"))),
        "SettledClaim": _object(**_claim(), result={"enum": ["done", "already"]}),
        "ClaimRows": _object(
            **{"from": _COUNT},
            messages={**_list(_body(**_CONTENT, **_LEASED)), "maxItems": limits.receive_max},
            to=_COUNT,
            n=_COUNT,
            now_ms=_INT,
        ),
        "Stats": _object(
            {
                "delay_buckets": _list(
                    _object(from_ms=_COUNT, to_ms={"type": ["integer", "null"]}, count=_COUNT)
                )
            },
            topic=_TEXT,
            group=_TEXT,
            **_topic(),
            oldest_due_ms={"type": ["integer", "null"]},
            rates=_object(
                **{
                    name: {"type": "number", "minimum": 0}
                    for name in ("sent", "delivered", "acked")
                }
            ),
            sent=_COUNT,
            delivered=_COUNT,
            now_ms=_INT,
        ),
        "Sent": {
            "oneOf": [
                _sent("created", "kept", "replaced"),
                _object(messages=_list(_sent(*RESULT_NAMES))),
                _object(
                    {"results": _list({"enum": list(RESULT_NAMES)})},
                    n=_COUNT,
                    **dict.fromkeys(RESULT_NAMES, _COUNT),
                ),
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
        "Controlled": _object(
            {"groups": _list(_TEXT)}, result=done, state={"enum": _STATES}, deliver_at_ms=_INT
        ),
        "ControlledMany": _object(
            results=_list(
                _object(
                    {"state": {"enum": _STATES}, "groups": _list(_TEXT)},
                    result={"enum": ["done", "too_late", "unknown"]},
                )
            )
        ),
        "Job": _job(),
        "Jobs": _object(jobs=_list(_ref("Job"))),
        **_transactions(),
        "Message": _message(),
        "Step": _step(),
        "Listed": _page(_listed()),
        "DeadLetters": _page(
            _listed(
                history=_list(_ref("Step")),
                history_complete={"type": "boolean"},
            )
        ),
        "Forecast": _object(
            topic=_TEXT,
            now_ms=_INT,
            minutes=_list(_object(from_ms=_INT, count=_COUNT)),
            hours=_list(_object(from_ms=_INT, count=_COUNT)),
            later=_COUNT,
        ),
        "Health": _object(status=_TEXT),
        "Ready": _object(
            {"role": {"enum": list(ROLES)}, "leader": _TEXT_OR_NULL},
            status=_TEXT,
            disk_full={"type": "boolean"},
            clock_held_ms=_COUNT,
        ),
        "Cluster": _cluster(),
        "ClusterMembers": _object(
            version=_COUNT,
            voters=_list(_TEXT),
            learners=_list(_TEXT),
            advice={"type": ["string", "null"]},
        ),
        "HandedOver": _object(**_NODE, epoch=_EPOCH, pause_ms=_COUNT),
        "Clock": _object(**clock),
        "AcceptedClock": _object(accepted_ms={"type": "integer", "maximum": 0}, **clock),
        "Archive": _object(**archive),
        "ReleasedArchive": _object(result={"enum": ["done", "already"]}, **archive),
        "About": _object(name=_TEXT, topics=_COUNT),
        "Problem": _problem(),
        **_camellia(),
    }


_CAUSE: Final[Schema] = {"enum": [*(cause.name.lower() for cause in Cause), None]}
_DESCRIBED: Final[dict[str, Schema]] = {
    **{name: schema for name, schema in _CONTENT.items() if name != "headers"},
    "state": {"enum": _STATES},
    "cause": _CAUSE,
    "sent_at_ms": _INT,
    "expires_at_ms": {"type": ["integer", "null"]},
    "max_retry": _COUNT,
}
_SOMETIMES: Final[dict[str, Schema]] = {"lease_until_ms": _INT, "ended_at_ms": _INT}
_BACKOFF: Final = _object(
    {
        "first_ms": _COUNT,
        "max_ms": _COUNT,
        "factor": {"type": "number"},
        "jitter": {"type": "number"},
    }
)


def _transactions() -> dict[str, Schema]:
    ended = ("committed", "aborted", "expired")
    state: Schema = {"enum": ["open", *ended]}
    int_or_null: Schema = {"type": ["integer", "null"]}
    repeated: Schema = {"enum": ["done", "already"]}
    known = _object(
        transaction=_TEXT,
        state=state,
        rows=_COUNT,
        parts=_COUNT,
        bytes=_COUNT,
        published=_COUNT,
        results=_object(**dict.fromkeys(RESULTS, _COUNT)),
        discarded_rows=_COUNT,
        expires_at_ms=int_or_null,
        decided_at_ms=int_or_null,
    )
    return {
        "Transaction": known,
        "Transactions": _object(
            transactions=_list(_ref("Transaction")),
            counts=_object(open=_COUNT, publishing=_COUNT, ended=_COUNT),
        ),
        "Begun": _object(transaction=_TEXT, state=state, expires_at_ms=int_or_null),
        "Staged": _object(rows=_COUNT, result={"enum": ["staged", "already"]}),
        "Committed": _object(
            transaction=_TEXT, state={"const": "committed"}, rows=_COUNT, result=repeated
        ),
        "Aborted": _object(
            transaction=_TEXT, state={"enum": ["aborted", "expired"]}, result=repeated
        ),
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
    schema = _body(**_DESCRIBED, headers=_CONTENT["headers"], topic=_TEXT, namespace=_TEXT)
    life = {"life": _list(_ref("Step")), "life_complete": {"type": "boolean"}}
    schema["properties"] |= _SOMETIMES | life | {"backoff": _BACKOFF}
    return schema


def _listed(**more: Schema) -> Schema:
    """A message of a list; what only some have is optional."""
    body = {"body": _TEXT, "body_base64": {"type": "string", "contentEncoding": "base64"}}
    headers = {"headers": _CONTENT["headers"], "backoff": _BACKOFF}
    return _object({**_SOMETIMES, **headers, **body, **more}, **_DESCRIBED)


def _page(message: Schema) -> Schema:
    return _object(messages=_list(message), cursor=_TEXT_OR_NULL, now_ms=_INT)


def _step() -> Schema:
    return _object(
        {
            "cause": _CAUSE,
            "attempts": _COUNT,
            "due_ms": _INT,
            "lease_until_ms": _INT,
            "epoch": _COUNT,
            "node": _COUNT,
        },
        event={"enum": list(EVENTS)},
        at_ms={"type": ["integer", "null"]},
    )


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
