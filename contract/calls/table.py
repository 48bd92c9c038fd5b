"""All calls of the API; the calls in no namespace are declared here, the others beside it.

In no namespace are principals, their tokens and sessions of browsers, and the calls of the broker,
its jobs, transactions, archive and cluster.
"""

from __future__ import annotations

from typing import Final

from delaylog.contract.calls import shapes
from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.calls.topics import IN_NAMESPACES
from delaylog.contract.members import Choice, Flag, Int, IntOrText, Name, Shape, Text, TextList
from delaylog.contract.times import TimeMs

# ---------------------------------------------------------------------- principals and sessions

PRINCIPALS: Final = "/v1/principals"
PRINCIPAL: Final = "/v1/principals/{principal}"
SESSION: Final = "/v1/session"

_RATE_MAX: Final = 1_000_000_000
GRANTS: Final = TextList(
    "grants", "What it may do, each written RIGHTS[:[NAMESPACE/]TOPIC[:GROUP]].", 0, 64
)
CERTIFICATES: Final = TextList(
    "certificates", "Identities in client certificates that prove it, such as dns:NAME.", 0, 16
)
MESSAGES_PER_S: Final = Int("messages_per_s", "Most messages it sends a second.", 0, _RATE_MAX)
CALLS_PER_S: Final = Int("calls_per_s", "Most calls it makes a second.", 0, _RATE_MAX)
EXPIRES_AT_MS: Final = TimeMs(
    "expires_at_ms",
    "When the new token expires; absent: never, or after the lifetime of the one before.",
)
GRACE_MS: Final = Int(
    "grace_ms", "How long the previous token stays valid; absent: a day.", 0, 400 * 86_400_000
)
FINISH: Final = Flag("finish", "Make no token, but end the previous one now.")
SETTINGS: Final = Shape(
    "Principal settings",
    GRANTS,
    CERTIFICATES,
    MESSAGES_PER_S,
    CALLS_PER_S,
    EXPIRES_AT_MS,
)
ROTATION: Final = Shape("Rotation", GRACE_MS, EXPIRES_AT_MS, FINISH)
NOTHING: Final = Shape("Nothing")
MAY: Final = Choice(
    "may",
    "Answer 403, with the reason, to a caller without this right on the topic, or on any topic.",
    ("send", "receive", "read", "bodies", "change", "admin", "operate"),
)
OF_TOPIC: Final = Name("topic", "The topic of may.", 200, shapes.NAME_PATTERN)

OF_ACCESS: Final = (
    ApiCall("listPrincipals", f"GET {PRINCIPALS}", "admin", "All principals.", "Principals"),
    ApiCall("getPrincipal", f"GET {PRINCIPAL}", "admin", "A principal.", "Principal"),
    ApiCall(
        "putPrincipal",
        f"PUT {PRINCIPAL}",
        "admin",
        "Create a principal with a token, or change what an existing one may do.",
        "PrincipalWithToken",
        Takes(SETTINGS),
        problems=(409,),
        other=(201, "PrincipalWithToken"),
        makes=True,
    ),
    ApiCall(
        "rotatePrincipal",
        f"POST {PRINCIPAL}/rotate",
        "admin",
        "Give a principal a new token; the previous one stays valid for a time.",
        "PrincipalWithToken",
        Takes(ROTATION, needed=False),
        problems=(409,),
    ),
    ApiCall(
        "revokePrincipal",
        f"DELETE {PRINCIPAL}",
        "admin",
        "Revoke a principal with all its tokens.",
        "Done",
        problems=(409,),
    ),
    ApiCall(
        "getSession",
        f"GET {SESSION}",
        "any",
        "Who the caller is; with may, whether it has a right.",
        "Session",
        query=(MAY, OF_TOPIC, shapes.NAMESPACE, shapes.GROUP),
        local=True,
        leaderless=True,
    ),
    ApiCall(
        "openSession",
        f"POST {SESSION}",
        "any",
        "Exchange a token for a session, which is in a cookie.",
        "OpenedSession",
        Takes(NOTHING, needed=False),
        problems=(409,),
        other=(201, "OpenedSession"),
        local=True,
    ),
    ApiCall("closeSession", f"DELETE {SESSION}", "any", "End the session.", "Done", local=True),
    ApiCall(
        "makeTicket",
        f"POST {SESSION}/ticket",
        "any",
        "A ticket, valid once and for seconds, for a request that cannot send headers.",
        "Ticket",
        Takes(NOTHING, needed=False),
        local=True,
    ),
)
"""Calls about who may do what."""


# ----------------------------------------------------------------------------------- the broker

OVERVIEW: Final = "/v1/overview"
CLUSTER: Final = "/v1/cluster"
ARCHIVE: Final = "/v1/archive"
CLOCK: Final = "/v1/clock"
HOLD: Final = "/v1/hold"
RELOAD: Final = "/v1/reload"
JOBS: Final = "/v1/jobs"
JOB: Final = "/v1/jobs/{job}"
TRANSACTIONS: Final = "/v1/transactions"
TRANSACTION: Final = "/v1/transactions/{transaction}"

TO: Final = IntOrText(
    "to", "Index or name of the next leader; absent: the fittest voter.", 0, 2**16
)
HAND_OVER: Final = Shape("Hand over", TO)
MEMBERS_CONTACT: Final = (
    Text("name", "Name of the node to add or move.", 64),
    Text("peer", "Its address for other nodes, HOST:PORT.", 300),
    Int(
        "election_port", "Its UDP port for elections, if it differs from the peer port.", 1, 65_535
    ),
    Text("http", "Its address for HTTP clients.", 300),
    Text("resp", "Its address for Redis clients.", 300),
)
MEMBERS_FORCE: Final = Flag(
    "force", "Remove voters even if those that stay are no majority of the present ones."
)
MEMBERS_CHANGE: Final = Shape(
    "Change of members",
    Choice(
        "action",
        "add a learner; promote learners to voters; remove nodes; replace a voter by a learner; "
        "move a node to other addresses.",
        ("add", "promote", "remove", "replace", "move"),
    ),
    TextList(
        "nodes",
        "Indexes or names; of a node to add its index; for replace the old one, then the new one.",
        1,
        7,
        length_max=64,
    ),
    *MEMBERS_CONTACT,
    MEMBERS_FORCE,
    rules={"required": ["action", "nodes"]},
)

OF_BROKER: Final = (
    ApiCall(
        "getOverview",
        f"GET {OVERVIEW}",
        "dashboard",
        "Sums over all topics, and the load to come.",
        "Overview",
        query=(shapes.MINUTES, shapes.HOURS),
    ),
    ApiCall(
        "listAllSchedules",
        "GET /v1/schedules",
        "read",
        "The schedules of all topics that fire next.",
        "Schedules",
        query=(shapes.LISTED_MAX,),
    ),
    ApiCall(
        "listAllTargets",
        "GET /v1/targets",
        "admin",
        "Push targets of all topics, those that fail first.",
        "Targets",
        query=(shapes.LISTED_MAX,),
    ),
    ApiCall("getClock", f"GET {CLOCK}", "any", "The broker's clock.", "Clock", leaderless=True),
    ApiCall(
        "acceptClock",
        f"POST {CLOCK}",
        "operate",
        "Go back to wall time after the wall clock was set back.",
        "AcceptedClock",
        Takes(shapes.ACCEPT_CLOCK),
        problems=(409,),
    ),
    ApiCall(
        "getHold",
        f"GET {HOLD}",
        "any",
        "Whether the broker is held, and what a release would set going.",
        "Hold",
    ),
    ApiCall(
        "putHold",
        f"PUT {HOLD}",
        "operate",
        "Deliver, push and fire nothing until the broker is released.",
        "ChangedHold",
        Takes(shapes.HOLD, needed=False),
        problems=(409,),
        repeatable=True,
    ),
    ApiCall(
        "releaseHold",
        f"DELETE {HOLD}",
        "operate",
        "Deliver, push and fire again.",
        "ChangedHold",
        problems=(409,),
        repeatable=True,
    ),
    ApiCall(
        "reload",
        f"POST {RELOAD}",
        "operate",
        "Read certificates and other configured files of this node again.",
        "Reloaded",
        problems=(409,),
        repeatable=True,
        local=True,
    ),
    ApiCall(
        "getArchive",
        f"GET {ARCHIVE}",
        "operate",
        "Which ended hours were released, and which wait for the archive.",
        "Archive",
    ),
    ApiCall(
        "releaseArchive",
        f"POST {ARCHIVE}/release",
        "operate",
        "Release ended hours, of which there is a copy, so that they are deleted.",
        "ReleasedArchive",
        Takes(shapes.RELEASE_ARCHIVE),
        problems=(409,),
    ),
    ApiCall("listJobs", f"GET {JOBS}", "read", "Jobs, newest first.", "Jobs"),
    ApiCall("getJob", f"GET {JOB}", "read", "The state and progress of a job.", "Job"),
    ApiCall("stopJob", f"DELETE {JOB}", "change", "Stop a job; its changes so far stay.", "Job"),
    ApiCall(
        "listTransactions",
        f"GET {TRANSACTIONS}",
        "read",
        "Transactions: open ones first, then those that ended, newest first.",
        "Transactions",
        query=(shapes.LISTED_MAX,),
    ),
    ApiCall(
        "begin",
        f"POST {TRANSACTIONS}",
        "send",
        "Begin a transaction, or extend the lifetime of an open one.",
        "Begun",
        Takes(shapes.TRANSACTION, needed=False),
        query=(shapes.ACKS,),
        problems=(429,),
    ),
    ApiCall(
        "getTransaction",
        f"GET {TRANSACTION}",
        "send",
        "The state of a transaction, and how it ended.",
        "Transaction",
    ),
    ApiCall(
        "stage",
        f"POST {TRANSACTION}/parts",
        "send",
        "Stage messages, which stay invisible until the commit.",
        "Staged",
        Takes("", columns=True),
        query=shapes.PARTS,
        query_needed=(shapes.PART,),
        problems=(409, 410, 429, 507),
        repeatable=True,
    ),
    ApiCall(
        "commit",
        f"POST {TRANSACTION}/commit",
        "send",
        "Send the messages that the given attempts have staged.",
        "Committed",
        Takes(shapes.COMMIT),
        query=(shapes.ACKS,),
        problems=(409, 410, 507),
        repeatable=True,
    ),
    ApiCall(
        "abort",
        f"POST {TRANSACTION}/abort",
        "send",
        "Discard all staged messages.",
        "Aborted",
        Takes(shapes.ABORT, needed=False),
        query=(shapes.ACKS,),
        problems=(409,),
        repeatable=True,
    ),
    ApiCall(
        "getCluster",
        f"GET {CLUSTER}",
        "any",
        "The cluster as this node sees it.",
        "Cluster",
        problems=(404,),
        local=True,
        leaderless=True,
    ),
    ApiCall(
        "handOver",
        f"POST {CLUSTER}/handover",
        "operate",
        "Hand over the leadership to another node.",
        "HandedOver",
        Takes(HAND_OVER, needed=False),
        problems=(404, 409),
        local=True,
    ),
    ApiCall(
        "changeMembers",
        f"POST {CLUSTER}/members",
        "operate",
        "Add, promote, remove, replace or move nodes.",
        "ClusterMembers",
        Takes(MEMBERS_CHANGE),
        problems=(404, 409),
        local=True,
    ),
)
"""Calls in no namespace."""


# ------------------------------------------------------------------------------------ all calls

ALL: Final = (*IN_NAMESPACES, *OF_BROKER, *OF_ACCESS)
BY_NAME: Final = {call.name: call for call in ALL}
