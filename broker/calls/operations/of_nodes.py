"""Calls in no namespace: of the broker as a whole, and of its transactions and its cluster."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls import archive, clock, cluster, jobs, shapes, transactions
from delaylog.broker.calls.operations.operation import Operation, Takes

CLUSTER: Final = "/v1/cluster"
ARCHIVE: Final = "/v1/archive"
CLOCK: Final = "/v1/clock"
JOBS: Final = "/v1/jobs"
JOB: Final = "/v1/jobs/{job}"
TRANSACTIONS: Final = "/v1/transactions"
TRANSACTION: Final = "/v1/transactions/{transaction}"

NODE_CALLS: Final = (
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
    Operation(
        "POST",
        f"{CLUSTER}/members",
        cluster.change_members,
        "changeMembers",
        "Add, promote, remove, replace or move nodes.",
        {200: "ClusterMembers"},
        Takes(shapes.MEMBERS_CHANGE),
        problems=(404, 409, 415),
    ),
)
"""Calls that every node answers for itself."""
