"""Every call of the native API: path, method, handler, and what it takes and answers.

The server routes by this table and `/openapi.json` is made from it, so that there is no call
without a description and none described that is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from delaylog.broker.web import (
    archive,
    claim_shapes,
    claims,
    clock,
    cluster,
    control,
    control_many,
    groups,
    jobs,
    listing,
    messages,
    shapes,
    topics,
    transactions,
)
from delaylog.broker.web.context import Context
from delaylog.broker.web.members import Member, Shape

Handler: TypeAlias = Callable[[Context], Awaitable[web.StreamResponse]]
TOPICS: Final = "/v1/topics"
TOPIC: Final = "/v1/topics/{topic}"
MESSAGE: Final = "/v1/topics/{topic}/messages/{id}"
GROUPS: Final = "/v1/topics/{topic}/groups"
GROUP: Final = "/v1/topics/{topic}/groups/{group}"
CLAIMS: Final = "/v1/topics/{topic}/claims"
CLAIM: Final = "/v1/topics/{topic}/claims/{claim}"


@dataclass(frozen=True, slots=True)
class Takes:
    """A request's body."""

    shape: Shape | str
    """Its members, or the name of a schema."""
    many: bool = False
    """An array of them is taken as well."""
    bulk: bool = False
    """A bulk body is taken as well."""
    arrow: bool = False
    """An Arrow body is taken as well."""
    columns: bool = False
    """Nothing but columns is taken: one of the forms in bulk_bodies.py."""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One call."""

    method: str
    path: str
    handler: Handler
    name: str
    doc: str
    answers: dict[int, str]
    """Schema of each good status."""
    takes: Takes | None = None
    query: tuple[Member, ...] = ()
    query_needed: tuple[Member, ...] = ()
    """Those of them that cannot be left out."""
    problems: tuple[int, ...] = ()
    """Statuses of refusals beyond those that any call may have."""
    bulk_answer: bool = False
    arrow_answer: bool = False


NATIVE: Final = (
    Operation("GET", TOPICS, topics.list_topics, "listTopics", "All topics.", {200: "Topics"}),
    Operation(
        "GET", TOPIC, topics.get_topic, "getTopic", "A topic.", {200: "Topic"}, problems=(404,)
    ),
    Operation(
        "PUT",
        TOPIC,
        topics.put_topic,
        "putTopic",
        "Make a topic, or replace its settings.",
        {200: "Topic", 201: "Topic"},
        Takes("Settings", needed=False),
        problems=(409, 415),
    ),
    Operation(
        "DELETE",
        TOPIC,
        topics.delete_topic,
        "deleteTopic",
        "Drop a topic in which nothing lives, or any by force.",
        {200: "Done"},
        query=(shapes.DROP_FORCE,),
        problems=(404, 409),
    ),
    Operation(
        "GET",
        f"{TOPIC}/stats",
        topics.topic_stats,
        "getStats",
        "Counts of a topic.",
        {200: "Stats"},
        query=(shapes.DELAY_BUCKETS, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/forecast",
        listing.forecast,
        "getForecast",
        "Messages to come, per minute and per hour.",
        {200: "Forecast"},
        query=(shapes.MINUTES, shapes.HOURS, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/messages",
        listing.list_messages,
        "listMessages",
        "Messages in due order, page by page.",
        {200: "Listed"},
        query=shapes.LIST,
        problems=(404,),
    ),
    Operation(
        "GET",
        f"{TOPIC}/dead",
        listing.list_dead,
        "listDead",
        "Dead letters with why and how they died.",
        {200: "DeadLetters"},
        query=shapes.DEAD,
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{TOPIC}/messages",
        messages.send_messages,
        "send",
        "Send one message, several, or a bulk or Arrow body.",
        {200: "Sent"},
        Takes(shapes.MESSAGE, many=True, bulk=True, arrow=True),
        query=(shapes.ACKS,),
        problems=(409, 415, 429, 507),
        bulk_answer=True,
    ),
    Operation(
        "POST",
        f"{TOPIC}/receive",
        messages.receive_messages,
        "receive",
        "Take what is ready under a lease, or wait for it.",
        {200: "Received"},
        Takes(shapes.RECEIVE, bulk=True, needed=False),
        problems=(404, 415),
        bulk_answer=True,
    ),
    Operation(
        "POST",
        f"{TOPIC}/peek",
        messages.peek_messages,
        "peek",
        "Look at what is ready.",
        {200: "Peeked"},
        Takes(shapes.RECEIVE, needed=False),
        problems=(404, 415),
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/{action}",
            messages.settle_messages,
            action,
            doc,
            {200: "Settled"},
            Takes(shapes.SETTLE, bulk=True),
            problems=(404, 415),
            bulk_answer=True,
        )
        for action, doc in (
            ("ack", "End messages as done."),
            ("nack", "Give messages back."),
            ("extend", "Keep messages longer."),
        )
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/messages:{action}",
            control_many.control_many,
            f"{action}Many",
            doc,
            {200: "ControlledMany", 202: "Job"},
            Takes(shape, bulk=True),
            problems=(404, 415, 429),
            bulk_answer=True,
        )
        for action, shape, doc in (
            ("cancel", shapes.CANCEL_MANY, "Cancel messages, by id or by filter."),
            ("reschedule", shapes.RESCHEDULE_MANY, "Give messages another time."),
            ("replay", shapes.REPLAY_MANY, "Let dead messages live again."),
        )
    ),
    Operation(
        "GET",
        MESSAGE,
        control.get_message,
        "getMessage",
        "Look at a message, living or lately ended.",
        {200: "Message"},
        query=(shapes.LIFE, shapes.GROUP),
        problems=(404,),
    ),
    Operation(
        "PATCH",
        MESSAGE,
        control.reschedule_message,
        "reschedule",
        "Give a message another time or priority.",
        {200: "Controlled"},
        Takes(shapes.RESCHEDULE),
        problems=(404, 409, 415),
    ),
    Operation(
        "DELETE",
        MESSAGE,
        control.cancel_message,
        "cancel",
        "Cancel a message.",
        {200: "Controlled"},
        query=(shapes.CANCEL_FORCE_QUERY,),
        problems=(404, 409),
    ),
)

GROUP_CALLS: Final = (
    Operation(
        "GET",
        GROUPS,
        groups.list_groups,
        "listGroups",
        "A topic's groups.",
        {200: "Groups"},
        problems=(404,),
    ),
    Operation(
        "GET", GROUP, groups.get_group, "getGroup", "A group.", {200: "Group"}, problems=(404,)
    ),
    Operation(
        "PUT",
        GROUP,
        groups.put_group_,
        "putGroup",
        "Make a group, which sees what is sent from now on.",
        {200: "Group", 201: "Group"},
        Takes(shapes.GROUP_SETTINGS, needed=False),
        problems=(409, 415),
    ),
    Operation(
        "DELETE",
        GROUP,
        groups.delete_group,
        "deleteGroup",
        "Drop a group; what waited for it alone has ended.",
        {200: "Done"},
        problems=(404, 409),
    ),
    Operation(
        "POST",
        f"{TOPIC}/purge",
        groups.purge_topic,
        "purge",
        "End what waits or is ready.",
        {200: "Purged"},
        Takes(shapes.PURGE, needed=False),
        problems=(404, 415),
    ),
    *(
        Operation(
            "POST",
            f"{TOPIC}/{action}",
            groups.pause_topic,
            action,
            doc,
            {200: "Paused"},
            Takes(shapes.PAUSE, needed=False),
            problems=(404, 415),
        )
        for action, doc in (
            ("pause", "Hand nothing out; sends and settles go on."),
            ("resume", "Hand out again."),
        )
    ),
)

CLAIM_CALLS: Final = (
    Operation(
        "GET",
        CLAIMS,
        claims.list_claims,
        "listClaims",
        "A topic's claims that have not ended.",
        {200: "Claims"},
        problems=(404,),
    ),
    Operation(
        "GET",
        CLAIM,
        claims.get_claim,
        "getClaim",
        "A claim, ended or not.",
        {200: "Claim"},
        query=(shapes.GROUP,),
        problems=(404,),
    ),
    Operation(
        "POST",
        CLAIM,
        claims.make_claim,
        "makeClaim",
        "Hold what is ready under a name; again: the same messages.",
        {200: "Claim"},
        Takes(claim_shapes.MAKE_CLAIM, needed=False),
        problems=(404, 410, 415, 429),
    ),
    Operation(
        "GET",
        f"{CLAIM}/rows",
        claims.read_claim,
        "readClaim",
        "Some of a claim's messages, the same ones each time.",
        {200: "ClaimRows"},
        query=claim_shapes.ROWS,
        problems=(404, 409, 410, 415),
        bulk_answer=True,
        arrow_answer=True,
    ),
    Operation(
        "POST",
        f"{CLAIM}/extend",
        claims.extend_claim_,
        "extendClaim",
        "Hold all of a claim longer.",
        {200: "SettledClaim"},
        Takes(claim_shapes.EXTEND_CLAIM, needed=False),
        problems=(404, 409, 410, 415),
    ),
    *(
        Operation(
            "POST",
            f"{CLAIM}/{action}",
            claims.settle_claim,
            f"{action}Claim",
            doc,
            {200: "SettledClaim"},
            Takes(claim_shapes.SETTLE_CLAIM, needed=False),
            problems=(404, 409, 410, 415),
        )
        for action, doc in (
            ("ack", "End all of a claim as done."),
            ("release", "Give all of a claim back."),
        )
    ),
)

CLUSTER: Final = "/v1/cluster"
ARCHIVE: Final = "/v1/archive"
CLOCK: Final = "/v1/clock"
JOBS: Final = "/v1/jobs"
JOB: Final = "/v1/jobs/{job}"
TRANSACTIONS: Final = "/v1/transactions"
TRANSACTION: Final = "/v1/transactions/{transaction}"
NODE: Final = (
    Operation("GET", CLOCK, clock.get_clock, "getClock", "The broker's clock.", {200: "Clock"}),
    Operation(
        "POST",
        CLOCK,
        clock.accept_clock,
        "acceptClock",
        "Go back to wall time after the wall clock was set back.",
        {200: "AcceptedClock"},
        Takes(shapes.ACCEPT_CLOCK),
        problems=(409, 415),
    ),
    Operation(
        "GET",
        ARCHIVE,
        archive.get_archive,
        "getArchive",
        "How far the archive of ended hours is.",
        {200: "Archive"},
    ),
    Operation(
        "POST",
        f"{ARCHIVE}/release",
        archive.release_archive,
        "releaseArchive",
        "Let ended hours go, of which there is a copy.",
        {200: "ReleasedArchive"},
        Takes(shapes.RELEASE_ARCHIVE),
        problems=(409, 415),
    ),
    Operation("GET", JOBS, jobs.list_jobs, "listJobs", "Jobs, newest first.", {200: "Jobs"}),
    Operation(
        "GET", JOB, jobs.get_job, "getJob", "How far a job is.", {200: "Job"}, problems=(404,)
    ),
    Operation(
        "DELETE",
        JOB,
        jobs.stop_job,
        "stopJob",
        "Stop a job; what it did stays done.",
        {200: "Job"},
        problems=(404,),
    ),
    Operation(
        "GET",
        TRANSACTIONS,
        transactions.list_transactions,
        "listTransactions",
        "Transactions: open ones first, then those that ended, newest first.",
        {200: "Transactions"},
        query=(shapes.LISTED_MAX,),
    ),
    Operation(
        "POST",
        TRANSACTIONS,
        transactions.begin_transaction,
        "begin",
        "Begin a transaction, or give an open one more time.",
        {200: "Begun"},
        Takes(shapes.TRANSACTION, needed=False),
        query=(shapes.ACKS,),
        problems=(415, 429),
    ),
    Operation(
        "GET",
        TRANSACTION,
        transactions.get_transaction,
        "getTransaction",
        "How far a transaction is, or how it ended.",
        {200: "Transaction"},
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{TRANSACTION}/parts",
        transactions.stage_part,
        "stage",
        "Stage messages; nobody sees them before the commit.",
        {200: "Staged"},
        Takes("", columns=True),
        query=(
            shapes.PART_TOPIC,
            shapes.PART_NAMESPACE,
            shapes.PRODUCER,
            shapes.PART,
            shapes.ATTEMPT,
            shapes.NUMBER,
            shapes.ACKS,
        ),
        query_needed=(shapes.PART_TOPIC, shapes.PART),
        problems=(404, 409, 410, 415, 429, 507),
    ),
    Operation(
        "POST",
        f"{TRANSACTION}/commit",
        transactions.commit_transaction,
        "commit",
        "Send what these attempts have staged; they count at once.",
        {200: "Committed"},
        Takes(shapes.COMMIT),
        query=(shapes.ACKS,),
        problems=(404, 409, 410, 415, 507),
    ),
    Operation(
        "POST",
        f"{TRANSACTION}/abort",
        transactions.abort_transaction,
        "abort",
        "Drop what was staged.",
        {200: "Aborted"},
        Takes(shapes.ABORT, needed=False),
        query=(shapes.ACKS,),
        problems=(404, 409, 415),
    ),
)
"""Calls in no namespace."""

CLUSTER_CALLS: Final = (
    Operation(
        "GET",
        CLUSTER,
        cluster.get_cluster,
        "getCluster",
        "What this node knows of its cluster.",
        {200: "Cluster"},
        problems=(404,),
    ),
    Operation(
        "POST",
        f"{CLUSTER}/handover",
        cluster.hand_over,
        "handOver",
        "Have another node lead.",
        {200: "HandedOver"},
        Takes(shapes.HAND_OVER, needed=False),
        problems=(404, 409, 415),
    ),
)
"""Calls that every node answers for itself."""

IN_NAMESPACES: Final = (*NATIVE, *GROUP_CALLS, *CLAIM_CALLS)
"""Calls of a topic in any namespace."""
ALL: Final = (*IN_NAMESPACES, *NODE, *CLUSTER_CALLS)
READS: Final = frozenset(
    operation.handler for operation in (*IN_NAMESPACES, *NODE) if operation.method == "GET"
)
"""Handlers that only look, which any node may answer."""

TAKES_QUERY: Final = frozenset(operation.handler for operation in ALL if operation.query)
"""Handlers that read the query, and refuse what they do not know of it."""


def by_tail(prefix: str) -> dict[str, dict[str, Handler]]:
    """Handlers by what stands behind a prefix, then by method."""
    table: dict[str, dict[str, Handler]] = {}
    for operation in ALL:
        head, _, tail = operation.path.partition(prefix)
        if head == "" and "{" not in tail and (tail == "" or tail.startswith("/")):
            table.setdefault(tail.removeprefix("/"), {})[operation.method] = operation.handler
    return table
