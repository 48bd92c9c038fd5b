"""Calls of a topic, its messages, groups and claims, in any namespace."""

from __future__ import annotations

from typing import Final

from delaylog.contract.calls import shapes, streams
from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.calls.schedules import OF_SCHEDULES
from delaylog.contract.calls.targets import OF_TARGETS

TOPICS: Final = "/v1/topics"
TOPIC: Final = "/v1/topics/{topic}"
MESSAGE: Final = "/v1/topics/{topic}/messages/{id}"
GROUPS: Final = "/v1/topics/{topic}/groups"
GROUP: Final = "/v1/topics/{topic}/groups/{group}"
STREAM: Final = "/v1/topics/{topic}/groups/{group}/stream"
CLAIMS: Final = "/v1/topics/{topic}/claims"
CLAIM: Final = "/v1/topics/{topic}/claims/{claim}"

IN_NAMESPACES: Final = (
    *OF_TARGETS,
    *OF_SCHEDULES,
    ApiCall(
        "listTopics",
        f"GET {TOPICS}",
        "read",
        "Topics by name, page by page.",
        "Topics",
        query=(
            shapes.TOPICS_LIMIT,
            shapes.CURSOR,
            shapes.PREFIX,
            shapes.CONTAINS,
            shapes.SORT,
        ),
    ),
    ApiCall("getTopic", f"GET {TOPIC}", "read", "A topic.", "Topic"),
    ApiCall(
        "putTopic",
        f"PUT {TOPIC}",
        "admin",
        "Create a topic, or replace its settings.",
        "Topic",
        Takes("Settings", needed=False),
        problems=(409,),
        other=(201, "Topic"),
        makes=True,
    ),
    ApiCall(
        "updateTopic",
        f"PATCH {TOPIC}",
        "admin",
        "Change the settings of a topic that are named; null: back to the default.",
        "Topic",
        Takes("Settings"),
        problems=(409,),
    ),
    ApiCall(
        "deleteTopic",
        f"DELETE {TOPIC}",
        "admin",
        "Drop a topic that has no living messages, or with force any topic.",
        "Done",
        query=(shapes.DROP_FORCE,),
        problems=(409,),
    ),
    ApiCall(
        "getStats",
        f"GET {TOPIC}/stats",
        "read",
        "Counts of a topic.",
        "Stats",
        query=(shapes.DELAY_BUCKETS, shapes.GROUP),
    ),
    ApiCall(
        "getForecast",
        f"GET {TOPIC}/forecast",
        "read",
        "Numbers of messages due in each of the next minutes and hours.",
        "Forecast",
        query=(shapes.MINUTES, shapes.HOURS, shapes.GROUP),
    ),
    ApiCall(
        "getTail",
        f"GET {TOPIC}/tail",
        "read",
        "Messages that are handed out while the call looks on, without leasing them.",
        "Tail",
        query=shapes.TAIL,
    ),
    ApiCall(
        "listMessages",
        f"GET {TOPIC}/messages",
        "read",
        "Messages in due order, page by page.",
        "Listed",
        query=shapes.LIST,
    ),
    ApiCall(
        "listDead",
        f"GET {TOPIC}/dead",
        "read",
        "Dead messages, with the causes and their histories.",
        "DeadLetters",
        query=shapes.DEAD,
    ),
    ApiCall(
        "listDeadReasons",
        f"GET {TOPIC}/dead/reasons",
        "read",
        "Dead letters by the reason of their last failure, the most frequent first.",
        "DeadReasons",
        query=(shapes.GROUP, shapes.LISTED_MAX, *shapes.FAILED, shapes.EXACT),
    ),
    ApiCall(
        "send",
        f"POST {TOPIC}/messages",
        "send",
        "Send one message, several, or a bulk or Arrow body.",
        "Sent",
        Takes(shapes.MESSAGE, many=True, bulk=True, arrow=True),
        query=(shapes.ACKS,),
        problems=(409, 507),
        bulk_answer=True,
        makes=True,
    ),
    ApiCall(
        "receive",
        f"POST {TOPIC}/receive",
        "receive",
        "Lease ready messages, or wait for some.",
        "Received",
        Takes(shapes.RECEIVE, bulk=True, needed=False),
        bulk_answer=True,
    ),
    ApiCall(
        "peek",
        f"POST {TOPIC}/peek",
        "bodies",
        "Read ready messages without leasing them.",
        "Peeked",
        Takes(shapes.RECEIVE, needed=False),
        repeatable=True,
    ),
    *(
        ApiCall(
            action,
            f"POST {TOPIC}/{action}",
            "receive",
            doc,
            "Settled",
            Takes(shapes.SETTLE, bulk=True),
            bulk_answer=True,
        )
        for action, doc in (
            ("ack", "Acknowledge messages, which ends them."),
            ("nack", "Return messages, to be delivered again later."),
            ("reject", "Make messages dead letters now, whatever retries are left."),
            ("extend", "Extend the leases of messages."),
        )
    ),
    ApiCall(
        "beginAttempts",
        f"POST {TOPIC}/begin",
        "receive",
        "Begin attempts at messages that were received without, and extend their leases.",
        "Settled",
        Takes(shapes.SETTLE, bulk=True),
        bulk_answer=True,
    ),
    ApiCall(
        "ackAndReceive",
        f"POST {TOPIC}/ack_and_receive",
        "receive",
        "Acknowledge messages, then lease the next ones or wait for some.",
        "AckedAndReceived",
        Takes(shapes.ACK_AND_RECEIVE),
        bulk_answer=True,
    ),
    *(
        ApiCall(
            f"{action}Many",
            f"POST {TOPIC}/messages:{action}",
            "change",
            doc,
            "ControlledMany",
            Takes(shape, bulk=True),
            problems=(429,),
            other=(202, "Job"),
            bulk_answer=True,
        )
        for action, shape, doc in (
            ("cancel", shapes.CANCEL_MANY, "Cancel messages, by id or by filter."),
            ("reschedule", shapes.RESCHEDULE_MANY, "Change the due times of messages."),
            ("replay", shapes.REPLAY_MANY, "Revive dead messages, which become due again."),
        )
    ),
    ApiCall(
        "countMessages",
        f"GET {TOPIC}/messages:count",
        "read",
        "Count the messages that a job with this filter would match, piece by piece.",
        "Counted",
        query=(
            shapes.FILTER_STATE,
            shapes.LIST_DUE_FROM,
            shapes.LIST_DUE_TO,
            shapes.WITH_TAG,
            shapes.WITH_KEY,
            shapes.FAILED_GROUP,
            *shapes.FAILED,
            shapes.CURSOR,
        ),
    ),
    ApiCall(
        "getMessage",
        f"GET {MESSAGE}",
        "read",
        "A message that is living or has ended recently.",
        "Message",
        query=(shapes.LIFE, shapes.WITH_BODY, shapes.GROUP),
    ),
    ApiCall(
        "reschedule",
        f"PATCH {MESSAGE}",
        "change",
        "Change the due time or priority of a message.",
        "Controlled",
        Takes(shapes.RESCHEDULE),
        problems=(409,),
    ),
    ApiCall(
        "cancel",
        f"DELETE {MESSAGE}",
        "change",
        "Cancel a message.",
        "Controlled",
        query=(shapes.CANCEL_FORCE_QUERY, shapes.UNTRIED_QUERY),
        problems=(409,),
    ),
    ApiCall(
        "listGroups", f"GET {GROUPS}", "read", "A topic's groups.", "Groups", lists_groups=True
    ),
    ApiCall("getGroup", f"GET {GROUP}", "read", "A group.", "Group"),
    ApiCall(
        "putGroup",
        f"PUT {GROUP}",
        "admin",
        "Create a group, which gets the messages sent from now on.",
        "Group",
        Takes(shapes.GROUP_SETTINGS, needed=False),
        problems=(409,),
        other=(201, "Group"),
        makes=True,
    ),
    ApiCall(
        "deleteGroup",
        f"DELETE {GROUP}",
        "admin",
        "Drop a group, which ends the messages that only this group had not handled.",
        "Done",
        problems=(409,),
    ),
    ApiCall(
        "stream",
        f"GET {STREAM}",
        "receive",
        "Lease messages as they become ready, over a WebSocket or as server-sent events.",
        "ReceivedMessage",
        query=streams.OPEN,
        streams=True,
    ),
    ApiCall(
        "purge",
        f"POST {TOPIC}/purge",
        "change",
        "End all waiting and ready messages.",
        "Purged",
        Takes(shapes.PURGE, needed=False),
    ),
    *(
        ApiCall(
            action,
            f"POST {TOPIC}/{action}",
            "change",
            doc,
            "Paused",
            Takes(shapes.PAUSE, needed=False),
        )
        for action, doc in (
            ("pause", "Stop deliveries; sends and settles go on."),
            ("resume", "Start deliveries again."),
        )
    ),
    ApiCall(
        "listClaims",
        f"GET {CLAIMS}",
        "read",
        "A topic's claims that have not ended.",
        "Claims",
        lists_groups=True,
    ),
    ApiCall(
        "getClaim",
        f"GET {CLAIM}",
        "receive",
        "A claim, ended or not.",
        "Claim",
        query=(shapes.GROUP,),
    ),
    ApiCall(
        "makeClaim",
        f"POST {CLAIM}",
        "receive",
        "Claim ready messages under a name; a repeat returns the same claim.",
        "Claim",
        Takes(shapes.MAKE_CLAIM, needed=False),
        problems=(410, 429),
    ),
    ApiCall(
        "readClaim",
        f"GET {CLAIM}/rows",
        "receive",
        "Some of a claim's messages, the same ones each time.",
        "ClaimRows",
        query=shapes.CLAIM_ROWS,
        problems=(409, 410, 415),
        bulk_answer=True,
        arrow_answer=True,
    ),
    *(
        ApiCall(
            f"{action}Claim",
            f"POST {CLAIM}/{action}",
            "receive",
            doc,
            "SettledClaim",
            Takes(shape, needed=False),
            problems=(409, 410),
        )
        for action, shape, doc in (
            ("extend", shapes.EXTEND_CLAIM, "Extend the lease of all messages of a claim."),
            ("ack", shapes.SETTLE_CLAIM, "Acknowledge all messages of a claim."),
            ("release", shapes.SETTLE_CLAIM, "Return all messages of a claim."),
        )
    ),
)
"""Calls of a topic in any namespace: also below /v1/ns/{ns}."""
