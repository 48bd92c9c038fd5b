"""The table of metrics: the name, kind, labels and meaning of each one.

Collectors build their families from it, and docs/METRICS.md lists it. Names follow Prometheus'
conventions; times are in seconds.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "histogram"]
TOPIC: Final = ("namespace", "topic")
GROUP: Final = ("namespace", "topic", "group")


class MetricRow(NamedTuple):
    """One metric."""

    name: str
    """As it is scraped; that of a counter ends in `_total`."""
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}", "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}_total", "counter", text, labels)


def _histogram(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(f"delaylog_{name}", "histogram", text, labels)


_MESSAGES: Final = (
    _histogram("ready_lateness_seconds", "From due to ready: the broker's own delay.", *TOPIC),
    _histogram(
        "lateness_seconds",
        "From due to the first hand-out.",
        *TOPIC,
    ),
    _gauge(
        "oldest_due_age_seconds",
        "How overdue the oldest ready message is.",
        *GROUP,
    ),
    _gauge("held", "1 while the broker is held: it delivers, pushes and fires nothing."),
    _gauge("topic_paused", "1 for each topic that is paused.", *TOPIC),
    _gauge("living_messages", "Messages that have not ended.", *GROUP),
    _gauge("ready_messages", "Messages that may be handed out now.", *GROUP),
    _gauge("leased_messages", "Messages under lease.", *GROUP),
    _counter("sent", "Messages accepted.", *TOPIC),
    _counter("delivered", "Messages handed out.", *GROUP),
    _counter("ended", "Messages that ended, by state.", *GROUP, "state"),
    _gauge("parked_messages", "Ready messages that wait for their key, over all groups."),
    _gauge("locked_keys", "Keys of messages under lease or in retry, over all groups."),
    _gauge("leases", "Open leases."),
    _gauge("claims", "Claims that have not ended."),
    _gauge("claim_rows", "Messages in claims that have not ended."),
    _counter("claims_ended", "Claims that ended, by how.", "state"),
    _gauge("topics", "Topics."),
    _gauge("schedules", "Recurring schedules."),
    _gauge("jobs_running", "Jobs that have not ended."),
    _gauge("producers", "Idempotent producers remembered."),
    _counter("producers_dropped", "Producers forgotten for lack of room."),
    _counter(
        "producer_answers_dropped",
        "First answers dropped for lack of room.",
    ),
)
_TRANSACTIONS: Final = (
    _gauge("transactions_open", "Open transactions."),
    _gauge("staged_bytes", "Bytes staged in open transactions."),
    _gauge("staged_rows", "Messages staged in open transactions."),
    _gauge("publish_lag_rows", "Committed messages that are not in their hours yet."),
    _gauge(
        "publish_lag_seconds",
        "Time since the commit of the oldest message that is not in its hour yet.",
    ),
    _counter("discarded_rows", "Staged messages that were never committed."),
    _counter("published_rows", "Messages of committed transactions that have reached their hours."),
    _counter("transactions_dropped", "Ended transactions forgotten for lack of room."),
)
_REQUESTS: Final = (
    _histogram(
        "request_seconds",
        "From a request to its answer, by call.",
        "face",
        "call",
    ),
    _counter("slow_requests", "Requests that took longer than a second.", "face"),
    _counter(
        "problems",
        "Refusals and errors, by code.",
        "face",
        "code",
    ),
    _counter("http_fast_requests", "HTTP requests served by the fast lane."),
    _gauge("connections", "Open connections of clients.", "face"),
    _gauge("waiting_consumers", "Long polls that wait."),
    _gauge("streams", "Open streams, of deliveries or of live reads."),
)
_LOG_AND_DISK: Final = (
    _histogram("fsync_seconds", "One write and fdatasync of the log."),
    _histogram(
        "commit_wait_seconds",
        "From the end of a turn that appended to its commit.",
    ),
    _counter("commits", "Group commits (one fdatasync each)."),
    _gauge("log_end_position", "End of the physical log."),
    _gauge("log_durable_position", "How far the physical log is durable."),
    _gauge("log_applied_position", "How far the physical log is applied."),
    _gauge("log_first_position", "Oldest position kept."),
    _gauge(
        "disk_bytes",
        "Disk space of the data folder, by part.",
        "part",
    ),
    _gauge("disk_free_bytes", "Free space of the data folder's file system."),
    _gauge("disk_full", "1 while sends are refused."),
    _gauge("reserve_bytes", "Allocated disk space that is used when the disk is full."),
    _gauge("reserve_target_bytes", "Size of the reserve when it is completely allocated."),
    _gauge("hour_folders", "Hours that hold rows."),
    _gauge("archive_held_folders", "Ended hours that are kept only for the archive."),
    _gauge(
        "backup_timestamp_seconds",
        "Unix time of the newest backup by `delaylog backup`.",
    ),
    _gauge("tail_bytes", "Rows and bodies waiting for the splitter."),
    _gauge("dirty_state_bytes", "State pages newer than their files."),
    _gauge(
        "memory_bytes",
        "Memory by use.",
        "use",
    ),
    _counter("checkpoints", "Checkpoints written."),
    _histogram("checkpoint_seconds", "Duration of a checkpoint, by step.", "step"),
    _histogram(
        "recovery_seconds",
        "Duration of opening the data folder, by step.",
        "step",
    ),
)
_PROCESS: Final = (
    _gauge("info", "1, with the release.", "version"),
    _histogram("loop_lag_seconds", "How late timers of the event loop fire."),
    _gauge("loop_lag_max_seconds", "Longest lag of the event loop since the start."),
    _gauge("tick_second", "Second that dispatch has reached."),
    _counter("wheel_turns", "Slots of the wheel that expired."),
    _counter("clock_steps", "Steps of the wall clock."),
    _gauge("clock_held_seconds", "How far the clock waits for wall time after a backward step."),
    _gauge("epoch", "Leadership counter."),
    _gauge("feature_level", "Feature level of the log: rises once all members support it."),
    _counter("reloads", "Reloads of configured files, by source and result.", "source", "result"),
    _gauge(
        "reload_failed",
        "1 while the newest reload of a source has failed.",
        "source",
    ),
    _gauge(
        "certificate_expires_timestamp_seconds",
        "When the certificate ends, in Unix time.",
        "source",
    ),
    _gauge(
        "certificate_faults",
        "Faults of the certificates in use.",
        "severity",
    ),
    _counter(
        "audit_lost_lines",
        "Lines lost while the audit log could not be written.",
    ),
    _gauge(
        "audit_failing",
        "1 while the audit log cannot be written and administrative calls are refused.",
    ),
)
_PUSH: Final = (
    _gauge("push_targets", "Push targets of this leader.", "state"),
    _gauge("push_in_flight", "Attempts at push targets in flight."),
    _counter("push_attempts", "Attempts at push targets that ended.", "result"),
)
_CLUSTER: Final = (
    _gauge("cluster_role", "1 for the current role of this node.", "role"),
    _gauge("cluster_epoch", "Counter of the newest epoch that this node knows."),
    _gauge("cluster_commit_position", "End of the log that is known to be committed."),
    _gauge("cluster_applied_position", "End of the log that is applied here."),
    _gauge("cluster_connected_peers", "Peers that are connected."),
    _gauge("cluster_leader_known", "1 while a leader is known and heard within a second."),
    _gauge(
        "cluster_majority",
        "1 while a majority is connected and acknowledges the log.",
    ),
    _gauge(
        "cluster_gate_age_seconds",
        "Age of the newest tick of a majority; leader only.",
    ),
    _gauge(
        "cluster_follower_lag_bytes",
        "Log that a follower does not have on its disk; leader only.",
        "node",
    ),
    _histogram(
        "cluster_follower_lag_seconds",
        "Age of the log that a follower lacks; leader only.",
        "node",
    ),
    _gauge("cluster_missing_voters", "Other voters that are not connected to this node."),
    _gauge(
        "cluster_clock_offset_seconds",
        "How far a peer's clock is ahead of this node's.",
        "peer",
    ),
    _gauge(
        "cluster_own_clock_offset_seconds",
        "How far this node's clock is ahead of the median.",
    ),
    _gauge(
        "cluster_copies_under_way",
        "Copies of a data folder sent or received now.",
        "direction",
    ),
    _counter("cluster_copies", "Copies of a data folder that have ended.", "direction", "result"),
    _gauge("cluster_unfit", "1 while this node is not fit to lead, by reason.", "reason"),
    _gauge("cluster_sync_seconds", "Median of recent syncs of the log; 0 without any."),
    _gauge("cluster_sync_max_seconds", "Longest recent sync of the log."),
    _counter(
        "cluster_automatic_handovers",
        "Hand-overs that a leader began itself.",
        "reason",
        "result",
    ),
    _counter("cluster_elections_won", "Times the election chose this node."),
    _counter("cluster_leaderships", "Times this node began to serve as the leader."),
    _counter("cluster_resignations", "Times it was chosen and did not serve in time."),
    _counter("cluster_handovers", "Hand-overs by this node that succeeded."),
    _counter("cluster_handovers_failed", "Hand-overs by this node that failed."),
    _counter(
        "cluster_lost_commits",
        "Times a leader lacked frames committed here.",
    ),
    _counter(
        "cluster_epochs_refused",
        "Messages refused for an epoch below the promised one.",
    ),
    _counter(
        "cluster_peers_refused",
        "Connections and messages between nodes refused.",
        "reason",
    ),
    _gauge(
        "cluster_election_datagram_age_seconds",
        "Age of a peer's newest datagram; raftos only.",
        "node",
    ),
    _counter(
        "cluster_election_datagrams_refused",
        "Election datagrams refused.",
        "reason",
    ),
)
_REDIS: Final = (
    _gauge("resp_clients", "Redis clients connected."),
    _gauge("resp_blocked_clients", "Redis clients in a blocking command."),
    _gauge("resp_keys", "Keys in all databases."),
    _gauge("resp_expiring_keys", "Keys that have an expiry."),
    _counter("resp_commands", "Commands of Redis clients."),
    _counter("resp_errors", "Errors returned to Redis clients."),
    _counter("resp_connections", "Redis clients accepted."),
    _counter("resp_connections_refused", "Redis clients refused because there were too many."),
    _counter("resp_failed_logins", "Wrong tokens of Redis clients."),
    _counter("resp_expired_keys", "Expired keys removed since the keyspace was loaded."),
)
SECTIONS: Final = {
    "Messages": _MESSAGES,
    "Transactions": _TRANSACTIONS,
    "Requests": _REQUESTS,
    "Log, disk and memory": _LOG_AND_DISK,
    "Process": _PROCESS,
    "Push": _PUSH,
    "Cluster": _CLUSTER,
    "Redis clients": _REDIS,
}
"""All metrics, in the order of docs/METRICS.md."""
METRICS: Final = {row.name: row for section in SECTIONS.values() for row in section}
"""The table by name."""
