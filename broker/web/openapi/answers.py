"""JSON schemas of answers, and of topic settings."""

from __future__ import annotations

import json
from typing import Final

from delaylog.broker.calls.handlers.batch_sends import RESULT_NAMES
from delaylog.broker.cluster.members.operator_calls import ROLES
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import REJECTED
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.views.message_trace import EVENTS
from delaylog.broker.web.openapi.camellia_answers import camellia_schemas
from delaylog.broker.web.openapi.looking_answers import FORECAST, TAIL
from delaylog.broker.web.openapi.schemas import (
    COUNT as _COUNT,
)
from delaylog.broker.web.openapi.schemas import (
    FLAG as _FLAG,
)
from delaylog.broker.web.openapi.schemas import (
    FLAG_OR_NULL as _FLAG_OR_NULL,
)
from delaylog.broker.web.openapi.schemas import (
    INT as _INT,
)
from delaylog.broker.web.openapi.schemas import (
    INT_OR_NULL as _INT_OR_NULL,
)
from delaylog.broker.web.openapi.schemas import (
    TEXT as _TEXT,
)
from delaylog.broker.web.openapi.schemas import (
    TEXT_OR_NULL as _TEXT_OR_NULL,
)
from delaylog.broker.web.openapi.schemas import (
    each as _each,
)
from delaylog.broker.web.openapi.schemas import (
    list_of as _list,
)
from delaylog.broker.web.openapi.schemas import (
    object_of as _object,
)
from delaylog.broker.web.openapi.schemas import (
    or_null as _or_null,
)
from delaylog.broker.web.openapi.schemas import (
    ref as _ref,
)
from delaylog.broker.web.openapi.schemas import (
    words as _words,
)
from delaylog.broker.web.openapi.target_answer import TARGET
from delaylog.storage.calls.topic_settings import SETTINGS
from delaylog.storage.layout import Cause, MessageState
from delaylog.storage.log.transaction_frames import RESULTS
from delaylog.storage.messages.members import Schema

_DONE: Final[Schema] = {"const": "done"}
_REPEATED: Final[Schema] = {"enum": ["done", "already"]}
_STATES: Final = [
    state.name.lower()
    for state in MessageState
    if state not in (MessageState.NONE, MessageState.MOVED)
]


_BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
_HEADERS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}


def _body(**members: Schema) -> Schema:
    """Members of a message that has a body, as text or as base64.

    Not by `oneOf`, for which clients in Go would be generated that cannot read the message.
    """
    schema = _object({"body": _TEXT, "body_base64": _BASE64}, **members)
    schema["if"] = {"required": ["body"]}
    schema["then"] = {"not": {"required": ["body_base64"]}}
    schema["else"] = {"required": ["body_base64"]}
    return schema


_READY: Final[dict[str, Schema]] = {
    **_each(_INT, "deliver_at_ms", "priority"),
    "id": _TEXT,
    "attempts": _COUNT,
    "tags": _list(_TEXT),
    "key": _TEXT_OR_NULL,
}
_LEASED: Final[dict[str, Schema]] = {
    "receipt": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "lease_until_ms": _INT,
}
_COUNTS: Final = _object(
    **_each(_COUNT, "waiting", "ready", "leased", "acked", "expired", "dead", "deleted")
)
_NODE: Final[dict[str, Schema]] = {"node": _COUNT, **_each(_TEXT, "name", "http")}
_EPOCH: Final = _object(**_each(_COUNT, "counter", "node"))


def settings_schema(limits: Limits, *, whole: bool) -> Schema:
    """Settings of a topic: as a request sets them (any part), or as an answer shows them (all)."""
    schema = SETTINGS.schema(limits)
    if whole:
        return {**schema, "required": [member.name for member in SETTINGS.members]}
    for name, default in TopicSettings().as_dict().items():
        # Not as `default`: generators write code that does not compile for words and objects.
        schema["properties"][name]["description"] += f" Default: {json.dumps(default)}."
    return schema


def answer_schemas(limits: Limits) -> dict[str, Schema]:
    """All schemas of answers by name."""
    return {
        "Settings": settings_schema(limits, whole=False),
        "WholeSettings": settings_schema(limits, whole=True),
        **_of_topics(),
        **_of_messages(limits),
        **_of_changes(),
        **_of_transactions(),
        **_of_node(),
        **camellia_schemas(),
    }


def _of_topics() -> dict[str, Schema]:
    claim = {
        **_each(_TEXT, "claim", "group"),
        "n": _COUNT,
        "state": _words(
            *("making", "open", "acking", "acked", "releasing", "released", "expired", "purged")
        ),
        "lease_until_ms": _INT_OR_NULL,
    }
    return {
        "Topic": _object(
            **_each(_TEXT, "topic", "namespace"),
            settings=_ref("WholeSettings"),
            **_each(_FLAG, "paused", "erasing"),
            groups=_list(_TEXT),
            counts=_COUNTS,
        ),
        "Topics": _object(topics=_list(_ref("Topic")), cursor=_TEXT_OR_NULL),
        "Done": _object(result=_DONE),
        "Group": _object(
            **_each(_TEXT, "group", "topic", "namespace"),
            ephemeral=_FLAG,
            delivered=_COUNT,
            counts=_COUNTS,
        ),
        "Target": TARGET,
        "Groups": _object(groups=_list(_ref("Group"))),
        "Purged": _object(result=_DONE, purged=_COUNT),
        "Paused": _object(result=_DONE, paused=_FLAG),
        "Claim": _object(**claim),
        "Claims": _object(claims=_list(_ref("Claim"))),
        "SettledClaim": _object(**claim, result=_REPEATED),
        "Stats": _object(
            {"delay_buckets": _list(_object(from_ms=_COUNT, to_ms=_INT_OR_NULL, count=_COUNT))},
            **_each(_TEXT, "topic", "group"),
            counts=_COUNTS,
            consumers=_list(_object(name=_TEXT, leased=_COUNT)),
            oldest_due_ms=_INT_OR_NULL,
            rates=_object(**_each({"type": "number", "minimum": 0}, "sent", "delivered", "acked")),
            **_each(_COUNT, "sent", "delivered"),
            now_ms=_INT,
        ),
        "Forecast": FORECAST,
        "Tail": TAIL,
    }


def _of_messages(limits: Limits) -> dict[str, Schema]:
    """Schemas of messages that are sent, handed out, or read."""

    def sent(*results: str) -> Schema:
        return _object(id=_TEXT, deliver_at_ms=_INT, result=_words(*results))

    def some(message: Schema) -> Schema:
        return {**_list(message), "maxItems": limits.receive_max}

    def page(**more: Schema) -> Schema:
        """Members that only some of its messages have are optional."""
        own = {"headers": _HEADERS, "backoff": backoff, "body": _TEXT, "body_base64": _BASE64}
        listed = _object(sometimes | own | more, **described)
        return _object(messages=_list(listed), cursor=_TEXT_OR_NULL, now_ms=_INT)

    received = _ref("ReceivedMessage")
    cause = _words(*(cause.name.lower() for cause in Cause), REJECTED, None)
    described = {
        **_READY,
        "state": _words(*_STATES),
        "cause": cause,
        "sent_at_ms": _INT,
        "expires_at_ms": _INT_OR_NULL,
        "max_retry": _COUNT,
    }
    sometimes = _each(_INT, "lease_until_ms", "ended_at_ms")
    backoff = _object(
        {**_each(_COUNT, "first_ms", "max_ms"), **_each({"type": "number"}, "factor", "jitter")}
    )
    reason = {"reason": _TEXT_OR_NULL}
    own = described | reason | _each(_TEXT, "topic", "namespace")
    message = _body(**own, headers=_HEADERS)
    message["properties"] |= sometimes | {
        "life": _list(_ref("Step")),
        "life_complete": _FLAG,
        "backoff": backoff,
    }
    results = _list(_words("done", "gone", "unknown"))
    return {
        # Clients in Go need a module more for `oneOf`.
        "Sent": {"anyOf": [_ref("SentMessage"), _ref("SentMessages"), _ref("SentRows")]},
        "SentMessage": sent("created", "kept", "replaced"),
        "SentMessages": _object(messages=_list(sent(*RESULT_NAMES))),
        "SentRows": _object(
            {"results": _list(_words(*RESULT_NAMES))}, **_each(_COUNT, "n", *RESULT_NAMES)
        ),
        "ReceivedMessage": _body(**_READY, headers=_HEADERS, **_LEASED),
        "PeekedMessage": _body(**_READY, headers=_HEADERS),
        "Received": _object(messages=some(received), now_ms=_INT),
        "Peeked": _object(messages=some(_ref("PeekedMessage")), now_ms=_INT),
        "ClaimRows": _object(
            messages=some(received), **_each(_COUNT, "from", "to", "n"), now_ms=_INT
        ),
        "Settled": _object(results=results),
        "AckedAndReceived": _object(results=results, messages=some(received), now_ms=_INT),
        "Message": message,
        "Step": _object(
            {
                "cause": cause,
                **_each(_INT, "due_ms", "lease_until_ms"),
                **_each(_COUNT, "attempts", "epoch", "node"),
                **_each(_TEXT, "consumer", "reason"),
            },
            event=_words(*EVENTS),
            at_ms=_INT_OR_NULL,
        ),
        "Listed": page(),
        "DeadLetters": page(history=_list(_ref("Step")), history_complete=_FLAG, **reason),
    }


def _of_changes() -> dict[str, Schema]:
    found = {"state": _words(*_STATES)}
    groups = {"groups": _list(_TEXT)}
    one = _object(found | groups, result=_words("done", "too_late", "unknown"))
    return {
        "Controlled": _object(groups, result=_DONE, **found, deliver_at_ms=_INT),
        "ControlledMany": _object(results=_list(one)),
        "Job": _object(
            job=_TEXT,
            **_each(_TEXT_OR_NULL, "namespace", "topic"),
            action=_words("cancel", "reschedule", "replay"),
            filter=_object(
                {**_each(_TEXT, "state", "tag", "key"), **_each(_INT, "due_from", "due_to")}
            ),
            state=_words("running", "done", "cancelled", "failed"),
            **_each(_COUNT, "scanned", "matched", "done", "too_late"),
            begun_ms=_INT,
            **_each(_INT_OR_NULL, "rate", "deliver_at_ms", "ended_ms"),
        ),
        "Jobs": _object(jobs=_list(_ref("Job"))),
    }


def _of_transactions() -> dict[str, Schema]:
    named = {"transaction": _TEXT, "state": _words("open", "committed", "aborted", "expired")}
    return {
        "Transaction": _object(
            **named,
            **_each(_COUNT, "rows", "parts", "bytes", "published", "discarded_rows"),
            results=_object(**_each(_COUNT, *RESULTS)),
            **_each(_INT_OR_NULL, "expires_at_ms", "decided_at_ms"),
        ),
        "Transactions": _object(
            transactions=_list(_ref("Transaction")),
            counts=_object(**_each(_COUNT, "open", "publishing", "ended")),
        ),
        "Begun": _object(**named, expires_at_ms=_INT_OR_NULL),
        "Staged": _object(rows=_COUNT, result=_words("staged", "already")),
        "Committed": _object(
            transaction=_TEXT, state={"const": "committed"}, rows=_COUNT, result=_REPEATED
        ),
        "Aborted": _object(transaction=_TEXT, state=_words("aborted", "expired"), result=_REPEATED),
    }


def _of_node() -> dict[str, Schema]:
    clock = {**_each(_INT, "now_ms", "wall_ms"), **_each(_COUNT, "held_ms", "steps")}
    archive = {
        "hold": _FLAG,
        **_each(_COUNT, "released_through_ms", "archivable_through_ms", "hours"),
        "oldest_ms": _INT_OR_NULL,
    }
    problem = _object(**_each(_TEXT, "type", "title", "code", "detail"), status=_INT)
    return {
        "Health": _object(status=_TEXT),
        "Ready": _object(
            {
                "role": _words(*ROLES),
                "leader": _TEXT_OR_NULL,
                "disk_full": _FLAG,
                "clock_held_ms": _COUNT,
            },
            status=_TEXT,
        ),
        "Cluster": _cluster(),
        "ClusterMembers": _object(
            version=_COUNT,
            **_each(_list(_TEXT), "voters", "learners"),
            advice=_TEXT_OR_NULL,
        ),
        "HandedOver": _object(**_NODE, epoch=_EPOCH, pause_ms=_COUNT),
        "Clock": _object(**clock),
        "AcceptedClock": _object(accepted_ms={"type": "integer", "maximum": 0}, **clock),
        "Reloaded": _object(reloaded=_list(_TEXT)),
        "Archive": _object(**archive),
        "ReleasedArchive": _object(result=_REPEATED, **archive),
        "About": _object(name=_TEXT),
        **_of_access(),
        "Problem": {**problem, "additionalProperties": True},
    }


def _of_access() -> dict[str, Schema]:
    principal = {
        "principal": _TEXT,
        **_each(_list(_TEXT), "grants", "redis", "certificates"),
        **_each(_COUNT, "messages_per_s", "calls_per_s"),
        "created_ms": _INT,
        "used_ms": _INT_OR_NULL,
        "tokens": _list(_object(created_ms=_INT, expires_at_ms=_INT_OR_NULL)),
    }
    return {
        "Principal": _object(**principal),
        "PrincipalWithToken": _object(**principal, token=_TEXT_OR_NULL),
        "Principals": _object(principals=_list(_ref("Principal"))),
        "Session": _object(
            **_each(_TEXT_OR_NULL, "principal", "csrf"),
            grants=_list(_TEXT),
            expires_at_ms=_INT_OR_NULL,
        ),
        "OpenedSession": _object(csrf=_TEXT, expires_at_ms=_INT),
        "Ticket": _object(ticket=_TEXT, expires_at_ms=_INT),
    }


def _cluster() -> Schema:
    member = _object(
        **_NODE,
        priority=_COUNT,
        **_each(_TEXT, "peer", "zone"),
        **_each(_TEXT_OR_NULL, "announced_http", "announced_peer", "release", "unfit"),
        **_each(_INT_OR_NULL, "match", "lag_bytes", "sync_ms"),
        **_each(_INT_OR_NULL, "clock_ahead_ms", "clock_uncertainty_ms"),
        **_each(_FLAG, "connected", "removed"),
        **_each(_FLAG_OR_NULL, "voter", "fit", "clock_off"),
    )
    return _object(
        **_NODE,
        role=_words(*ROLES),
        epoch=_or_null(_EPOCH),
        leader=_or_null(_object(**_NODE)),
        **_each(_COUNT, "version", "log_end", "durable", "commit", "applied", "feature_level"),
        **_each(_TEXT, "cluster", "release"),
        **_each(_TEXT_OR_NULL, "cluster_id", "error"),
        **_each(_INT_OR_NULL, "gate_age_ms", "copy_to", "copy_from", "clock_offset_ms"),
        **_each(_FLAG, "majority", "peer_tls", "clock_stands_aside"),
        missing_voters=_list(_TEXT),
        connections_refused={"type": "object", "additionalProperties": _COUNT},
        members=_list(member),
    )
