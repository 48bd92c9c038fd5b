"""JSON schemas of answers, of topic settings, and of schedules with their firings."""

from __future__ import annotations

import json
from typing import Final

from delaylog.broker.calls.handlers.messages import RESULT_NAMES
from delaylog.broker.cluster.members.operator_calls import ROLES
from delaylog.broker.engine.deliver.failures import HOW
from delaylog.broker.engine.late.timeline import CAUSES
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.lookup.message_filter import FAILURE
from delaylog.broker.engine.model import REJECTED
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.views.message_trace import EVENTS
from delaylog.broker.rules.schedules.instants import MARKS
from delaylog.contract.calls.schedules import CATCH_UPS, FOLDS, GAPS, MESSAGE_FIELDS, OVERLAPS
from delaylog.contract.calls.shapes import SETTINGS, TAIL_MAX
from delaylog.contract.calls.targets import MODES
from delaylog.contract.members import Schema
from delaylog.storage.layout import Cause, MessageState
from delaylog.storage.log.payloads import RESULTS

# --------------------------------------------------------------------- what schemas are made of

INT: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
INT_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
FLAG_OR_NULL: Final[Schema] = {"type": ["boolean", "null"]}


def ref(name: str) -> Schema:
    """A schema of the document, by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(items: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": items}


def object_of(optional: dict[str, Schema] | None = None, /, **members: Schema) -> Schema:
    """An object that may get more members in a later release: a generated client has to let them
    pass.
    """
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
    }


def each(kind: Schema, *names: str) -> dict[str, Schema]:
    """Members of the same kind."""
    return dict.fromkeys(names, kind)


def words(*texts: str | None) -> Schema:
    """One of these texts."""
    return {"enum": list(texts)}


def or_null(shape: Schema) -> Schema:
    """This, or null."""
    return {"anyOf": [shape, {"type": "null"}]}


# ------------------------------------------------------------------------------------ schedules

_BASE64: Final[Schema] = {"type": "string", "contentEncoding": "base64"}
_COUNT_OR_NULL: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_PLACE: Final = each(TEXT, "topic", "namespace", "schedule")
_MESSAGE_FIELDS: Final = {member.name: member.schema(None) for member in MESSAGE_FIELDS}


SCHEDULE: Final[Schema] = object_of(
    {"body": TEXT, "body_base64": _BASE64},
    **_PLACE,
    state=words("running", "paused", "ended"),
    **each(TEXT_OR_NULL, "note", "cron", "rrule"),
    **each(TEXT, "zone", "explain"),
    gap=words(*GAPS),
    fold=words(*FOLDS),
    catch_up=words(*CATCH_UPS),
    overlap=words(*OVERLAPS),
    **each(COUNT, "jitter_ms", "catch_up_window_ms", "n", "skipped"),
    **each(_COUNT_OR_NULL, "interval_ms", "start_ms", "end_ms", "count"),
    **each(_COUNT_OR_NULL, "next_ms", "due_ms", "fired_ms", "buffered_ms"),
    **_MESSAGE_FIELDS,
)
"""Without the right for bodies, `body` is absent and `headers` are null."""
_FIRING: Final = object_of(instant_ms=COUNT, due_ms=COUNT, local=TEXT, change=words(*MARKS, None))
OF_SCHEDULES: Final[dict[str, Schema]] = {
    "Schedule": SCHEDULE,
    "Schedules": object_of(schedules=list_of(ref("Schedule")), cursor=TEXT_OR_NULL),
    "Fired": object_of(**_PLACE, id=TEXT, n=COUNT),
    "Backfilled": object_of(
        **_PLACE, instants=COUNT, next_from_ms=_COUNT_OR_NULL, last_due_ms=_COUNT_OR_NULL
    ),
    "Coming": object_of(
        **_PLACE,
        zone=TEXT,
        explain=TEXT,
        converted={"type": ["object", "null"]},
        firings=list_of(_FIRING),
    ),
}


# -------------------------------------------------------------------------------------- answers

# JSON schema of a push target in an answer.

TARGET: Final = object_of(
    **each(TEXT, "topic", "namespace", "group", "url"),
    mode=words(*MODES),
    **each(COUNT, "timeout_ms", "concurrency"),
    per_second={"type": ["number", "null"]},
    digests=list_of(TEXT),
    secret=TEXT_OR_NULL,
    state=words("closed", "open", "half-open", "throttled", "disabled"),
    **each(TEXT, "disabled", "reason"),
    **each(COUNT, "open_until_ms", "turns", "throttled_until_ms", "failing_since_ms"),
)

# JSON schema of the overview of all topics.

OVERVIEW: Final[Schema] = object_of(
    now_ms=INT,
    **each(COUNT, "topics", "later", "jobs_running", "free_bytes"),
    namespaces=list_of(TEXT),
    counts=object_of(**each(COUNT, "waiting", "ready", "leased", "dead")),
    rates=object_of(**each({"type": "number", "minimum": 0}, "sent", "delivered", "acked")),
    behind=list_of(
        object_of(namespace=TEXT, topic=TEXT, group=TEXT, ready=COUNT, oldest_due_ms=INT_OR_NULL),
    ),
    **each(list_of(object_of(from_ms=INT, count=COUNT)), "minutes", "hours", "seconds"),
    lateness=object_of(
        bounds_ms=list_of(COUNT),
        minutes=list_of(object_of(from_ms=INT, counts=list_of(COUNT))),
    ),
    disk_full=FLAG,
)

# JSON schemas of answers that look at a topic: its tail and its forecast.

_MESSAGE: Final = object_of(
    id=TEXT,
    group=TEXT,
    consumer=TEXT,
    handed_out_ms=INT,
    deliver_at_ms=INT,
    attempts=COUNT,
    size=COUNT,
)
TAIL: Final = object_of(
    messages={**list_of(_MESSAGE), "maxItems": TAIL_MAX}, next=COUNT, complete=FLAG, now_ms=INT
)
_SLOTS: Final = list_of(object_of(from_ms=INT, count=COUNT, firings=COUNT))
FORECAST: Final = object_of(
    topic=TEXT,
    now_ms=INT,
    minutes=_SLOTS,
    hours=_SLOTS,
    later=COUNT,
    schedules=COUNT,
    schedules_left=FLAG,
    firings_until_ms=INT,
)
_DONE: Final[Schema] = {"const": "done"}
_REPEATED: Final[Schema] = {"enum": ["done", "already"]}
_STATES: Final = [
    state.name.lower()
    for state in MessageState
    if state not in (MessageState.NONE, MessageState.MOVED)
]


_HEADERS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}


def _body(**members: Schema) -> Schema:
    """Members of a message that has a body, as text or as base64.

    Not by `oneOf`, for which clients in Go would be generated that cannot read the message.
    """
    schema = object_of({"body": TEXT, "body_base64": _BASE64}, **members)
    schema["if"] = {"required": ["body"]}
    schema["then"] = {"not": {"required": ["body_base64"]}}
    schema["else"] = {"required": ["body_base64"]}
    return schema


_READY: Final[dict[str, Schema]] = {
    **each(INT, "deliver_at_ms", "priority"),
    "id": TEXT,
    "attempts": COUNT,
    "tags": list_of(TEXT),
    "key": TEXT_OR_NULL,
}
_LEASED: Final[dict[str, Schema]] = {
    "receipt": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "lease_until_ms": INT,
}
_COUNTS: Final = object_of(
    **each(COUNT, "waiting", "ready", "leased", "acked", "expired", "dead", "cancelled", "replaced")
)
_NODE: Final[dict[str, Schema]] = {"node": COUNT, **each(TEXT, "name", "http")}
_EPOCH: Final = object_of(**each(COUNT, "counter", "node"))


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
    }


def _of_topics() -> dict[str, Schema]:
    claim = {
        **each(TEXT, "claim", "group"),
        "n": COUNT,
        "state": words(
            *("making", "open", "acking", "acked", "releasing", "released", "expired", "purged")
        ),
        "lease_until_ms": INT_OR_NULL,
    }
    return {
        "Topic": object_of(
            **each(TEXT, "topic", "namespace"),
            settings=ref("WholeSettings"),
            **each(FLAG, "paused", "erasing"),
            groups=list_of(TEXT),
            counts=_COUNTS,
        ),
        "Topics": object_of(topics=list_of(ref("Topic")), cursor=TEXT_OR_NULL),
        "Done": object_of(result=_DONE),
        "Group": object_of(
            **each(TEXT, "group", "topic", "namespace"),
            ephemeral=FLAG,
            delivered=COUNT,
            counts=_COUNTS,
        ),
        "Target": TARGET,
        "Targets": object_of(targets=list_of(ref("Target"))),
        "Groups": object_of(groups=list_of(ref("Group"))),
        "Purged": object_of(result=_DONE, purged=COUNT),
        "Paused": object_of(result=_DONE, paused=FLAG),
        "Claim": object_of(**claim),
        "Claims": object_of(claims=list_of(ref("Claim"))),
        "SettledClaim": object_of(**claim, result=_REPEATED),
        "Stats": object_of(
            {"delay_buckets": list_of(object_of(from_ms=COUNT, to_ms=INT_OR_NULL, count=COUNT))},
            **each(TEXT, "topic", "group"),
            counts=_COUNTS,
            consumers=list_of(object_of(name=TEXT, leased=COUNT)),
            waiting_receives=INT_OR_NULL,
            bounded_by=words(*CAUSES, None),
            oldest_due_ms=INT_OR_NULL,
            rates=object_of(**each({"type": "number", "minimum": 0}, "sent", "delivered", "acked")),
            **each(COUNT, "sent", "delivered"),
            now_ms=INT,
        ),
        "Forecast": FORECAST,
        "Tail": TAIL,
    }


def _of_messages(limits: Limits) -> dict[str, Schema]:
    """Schemas of messages that are sent, handed out, or read."""

    def sent(*results: str) -> Schema:
        return object_of(id=TEXT, deliver_at_ms=INT, result=words(*results))

    def some(message: Schema) -> Schema:
        return {**list_of(message), "maxItems": limits.receive_max}

    def page(**more: Schema) -> Schema:
        """Members that only some of its messages have are optional."""
        own = {"headers": _HEADERS, "backoff": backoff, "body": TEXT, "body_base64": _BASE64}
        listed = object_of(sometimes | own | more, **described)
        return object_of(messages=list_of(listed), cursor=TEXT_OR_NULL, now_ms=INT)

    received = ref("ReceivedMessage")
    cause = words(*(cause.name.lower() for cause in Cause), REJECTED, None)
    described = {
        **_READY,
        "state": words(*_STATES),
        "cause": cause,
        "sent_at_ms": INT,
        "expires_at_ms": INT_OR_NULL,
        "max_retry": COUNT,
    }
    sometimes = {
        **each(INT, "lease_until_ms", "ended_at_ms"),
        **each(TEXT_OR_NULL, "consumer", "address"),
    }
    backoff = object_of(
        {**each(COUNT, "first_ms", "max_ms"), **each({"type": "number"}, "factor", "jitter")}
    )
    reason = {"reason": TEXT_OR_NULL, "failures": list_of(ref("Failure"))}
    own = described | reason | each(TEXT, "topic", "namespace")
    message = _body(**own, headers=_HEADERS)
    message["properties"] |= sometimes | {
        "life": list_of(ref("Step")),
        "life_complete": FLAG,
        "waits": list_of(ref("Wait")),
        "backoff": backoff,
    }
    results = list_of(words("done", "gone", "unknown"))
    return {
        # Clients in Go need a module more for `oneOf`.
        "Sent": {"anyOf": [ref("SentMessage"), ref("SentMessages"), ref("SentRows")]},
        "SentMessage": sent("created", "kept", "replaced"),
        "SentMessages": object_of(messages=list_of(sent(*RESULT_NAMES))),
        "SentRows": object_of(
            {"results": list_of(words(*RESULT_NAMES))}, **each(COUNT, "n", *RESULT_NAMES)
        ),
        "ReceivedMessage": _body(**_READY, headers=_HEADERS, **_LEASED),
        "PeekedMessage": _body(**_READY, headers=_HEADERS),
        "Received": object_of(messages=some(received), now_ms=INT),
        "Peeked": object_of(messages=some(ref("PeekedMessage")), now_ms=INT),
        "ClaimRows": object_of(
            messages=some(received), **each(COUNT, "from", "to", "n"), now_ms=INT
        ),
        "Settled": object_of(results=results),
        "AckedAndReceived": object_of(results=results, messages=some(received), now_ms=INT),
        "Message": message,
        "Step": object_of(
            {
                "cause": cause,
                **each(INT, "due_ms", "lease_until_ms"),
                **each(COUNT, "attempts", "epoch", "node"),
                **each(TEXT, "consumer", "address", "reason"),
            },
            event=words(*EVENTS),
            at_ms=INT_OR_NULL,
        ),
        "Failure": object_of(
            attempt=COUNT,
            at_ms=INT,
            cause=words(*HOW),
            **each(TEXT_OR_NULL, "reason", "consumer", "address"),
        ),
        "DeadReasons": object_of(
            **each(TEXT, "topic", "group"),
            reasons=list_of(
                object_of(
                    cause=words(*HOW),
                    **each(TEXT_OR_NULL, "reason", "reason_prefix"),
                    **each(COUNT, "texts", "count", "consumers"),
                    **each(INT, "first_ms", "last_ms"),
                    last_id=TEXT_OR_NULL,
                )
            ),
            **each(COUNT, "rest", "other"),
            now_ms=INT,
        ),
        "Listed": page(),
        "Wait": object_of(
            {"held_by": TEXT_OR_NULL}, **each(INT, "from_ms", "until_ms"), cause=words(*CAUSES)
        ),
        "DeadLetters": page(
            history=list_of(ref("Step")),
            history_complete=FLAG,
            waits=list_of(ref("Wait")),
            **reason,
        ),
    }


def _of_changes() -> dict[str, Schema]:
    found = {"state": words(*_STATES)}
    groups = {"groups": list_of(TEXT)}
    one = object_of(found | groups, result=words("done", "too_late", "unknown"))
    return {
        "Controlled": object_of(groups, result=_DONE, **found, deliver_at_ms=INT),
        "ControlledMany": object_of(results=list_of(one)),
        "Job": object_of(
            job=TEXT,
            **each(TEXT_OR_NULL, "namespace", "topic"),
            action=words("cancel", "reschedule", "replay"),
            filter=object_of(
                {
                    **each(TEXT, "state", "tag", "key", "group", *FAILURE),
                    **each(INT, "due_from", "due_to"),
                }
            ),
            state=words("running", "done", "cancelled", "failed"),
            **each(COUNT, "scanned", "matched", "done", "too_late"),
            begun_ms=INT,
            **each(INT_OR_NULL, "rate", "deliver_at_ms", "ended_ms"),
        ),
        "Counted": object_of(**each(COUNT, "matched", "scanned"), cursor=TEXT_OR_NULL),
        "Jobs": object_of(jobs=list_of(ref("Job"))),
    }


def _of_transactions() -> dict[str, Schema]:
    named = {"transaction": TEXT, "state": words("open", "committed", "aborted", "expired")}
    return {
        "Transaction": object_of(
            **named,
            **each(COUNT, "rows", "parts", "bytes", "published", "discarded_rows"),
            results=object_of(**each(COUNT, *RESULTS)),
            **each(INT_OR_NULL, "expires_at_ms", "decided_at_ms"),
        ),
        "Transactions": object_of(
            transactions=list_of(ref("Transaction")),
            counts=object_of(**each(COUNT, "open", "publishing", "ended")),
        ),
        "Begun": object_of(**named, expires_at_ms=INT_OR_NULL),
        "Staged": object_of(rows=COUNT, result=words("staged", "already")),
        "Committed": object_of(
            transaction=TEXT, state={"const": "committed"}, rows=COUNT, result=_REPEATED
        ),
        "Aborted": object_of(transaction=TEXT, state=words("aborted", "expired"), result=_REPEATED),
    }


def _of_node() -> dict[str, Schema]:
    clock = {**each(INT, "now_ms", "wall_ms"), **each(COUNT, "held_ms", "steps")}
    archive = {
        "hold": FLAG,
        **each(COUNT, "released_through_ms", "archivable_through_ms", "hours"),
        "oldest_ms": INT_OR_NULL,
        "next": or_null(object_of(hour=TEXT, from_ms=INT_OR_NULL, why=TEXT)),
    }
    hold = {
        **each(FLAG, "held", "partial"),
        "since_ms": INT_OR_NULL,
        "note": TEXT_OR_NULL,
        **each(COUNT, "due", "pushes", "firings"),
    }
    problem = object_of(**each(TEXT, "type", "title", "code", "detail"), status=INT)
    return {
        "Health": object_of(status=TEXT),
        "Ready": object_of(
            {
                "role": words(*ROLES),
                "leader": TEXT_OR_NULL,
                "disk_full": FLAG,
                "clock_held_ms": COUNT,
            },
            status=TEXT,
        ),
        "Cluster": _cluster(),
        "ClusterMembers": object_of(
            version=COUNT,
            **each(list_of(TEXT), "voters", "learners"),
            advice=TEXT_OR_NULL,
        ),
        "HandedOver": object_of(**_NODE, epoch=_EPOCH, pause_ms=COUNT),
        "Overview": OVERVIEW,
        "Clock": object_of(**clock),
        "AcceptedClock": object_of(accepted_ms={"type": "integer", "maximum": 0}, **clock),
        "Hold": object_of(**hold),
        "ChangedHold": object_of(result=_REPEATED, **hold),
        "Reloaded": object_of(reloaded=list_of(TEXT)),
        "Archive": object_of(**archive),
        "ReleasedArchive": object_of(result=_REPEATED, **archive),
        "About": object_of(name=TEXT),
        **_of_access(),
        "Problem": {**problem, "additionalProperties": True},
    }


def _of_access() -> dict[str, Schema]:
    principal = {
        "principal": TEXT,
        **each(list_of(TEXT), "grants", "certificates"),
        **each(COUNT, "messages_per_s", "calls_per_s"),
        "created_ms": INT,
        "used_ms": INT_OR_NULL,
        "tokens": list_of(object_of(created_ms=INT, expires_at_ms=INT_OR_NULL)),
    }
    return {
        "Principal": object_of(**principal),
        "PrincipalWithToken": object_of(**principal, token=TEXT_OR_NULL),
        "Principals": object_of(principals=list_of(ref("Principal"))),
        "Session": object_of(
            **each(TEXT_OR_NULL, "principal", "csrf"),
            grants=list_of(TEXT),
            expires_at_ms=INT_OR_NULL,
            cluster=FLAG,
        ),
        "OpenedSession": object_of(csrf=TEXT, expires_at_ms=INT),
        "Ticket": object_of(ticket=TEXT, expires_at_ms=INT),
    }


def _cluster() -> Schema:
    member = object_of(
        **_NODE,
        priority=COUNT,
        **each(TEXT, "peer", "election", "zone"),
        **each(TEXT_OR_NULL, "announced_http", "announced_peer", "release", "unfit"),
        **each(INT_OR_NULL, "match", "lag_bytes", "sync_ms"),
        **each(INT_OR_NULL, "clock_ahead_ms", "clock_uncertainty_ms", "silent_ms"),
        **each(FLAG, "connected", "removed"),
        **each(FLAG_OR_NULL, "voter", "fit", "clock_off", "datagrams_arrive"),
    )
    return object_of(
        **_NODE,
        role=words(*ROLES),
        epoch=or_null(_EPOCH),
        leader=or_null(object_of(**_NODE)),
        leaders=list_of(
            object_of(**each(COUNT, "counter", "node"), name=TEXT_OR_NULL, began_ms=INT_OR_NULL)
        ),
        **each(COUNT, "version", "log_end", "durable", "commit", "applied", "feature_level"),
        **each(TEXT, "cluster", "release", "elections"),
        **each(TEXT_OR_NULL, "cluster_id", "error", "not_ready"),
        **each(INT_OR_NULL, "gate_age_ms", "copy_to", "copy_from", "clock_offset_ms"),
        **each(FLAG, "majority", "peer_tls", "clock_stands_aside"),
        missing_voters=list_of(TEXT),
        connections_refused={"type": "object", "additionalProperties": COUNT},
        certificate_faults=list_of(
            object_of(severity=words("warning", "error"), **each(TEXT, "text", "advice"))
        ),
        members=list_of(member),
    )
