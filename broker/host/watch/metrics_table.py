"""The table of metrics: the name, kind, labels and meaning of each one.

A collector gives names and values; the table gives the rest of a metric family. docs/METRICS.md
lists the table. The rows of a leaf are in its `leaf.py`. Names follow Prometheus' conventions;
times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from delaylog.broker.host.rows import counter, gauge, histogram
from delaylog.broker.leaves import metrics_of
from delaylog.extras import PUSH, REDIS

TOPIC: Final = ("namespace", "topic")
GROUP: Final = ("namespace", "topic", "group")

_MESSAGES: Final = (
    histogram("ready_lateness_seconds", "From due to ready: the broker's own delay.", *TOPIC),
    histogram(
        "lateness_seconds",
        "From due to the first hand-out.",
        *TOPIC,
    ),
    gauge(
        "oldest_due_age_seconds",
        "How overdue the oldest ready message is.",
        *GROUP,
    ),
    gauge("held", "1 while the broker is held: it delivers, pushes and fires nothing."),
    gauge("topic_paused", "1 for each topic that is paused.", *TOPIC),
    gauge("living_messages", "Messages that have not ended.", *GROUP),
    gauge("ready_messages", "Messages that may be handed out now.", *GROUP),
    gauge("leased_messages", "Messages under lease.", *GROUP),
    counter("sent", "Messages accepted.", *TOPIC),
    counter("delivered", "Messages handed out.", *GROUP),
    counter("ended", "Messages that ended, by state.", *GROUP, "state"),
    gauge("parked_messages", "Ready messages that wait for their key, over all groups."),
    gauge("locked_keys", "Keys of messages under lease or in retry, over all groups."),
    gauge("leases", "Open leases."),
    gauge("claims", "Claims that have not ended."),
    gauge("claim_rows", "Messages in claims that have not ended."),
    counter("claims_ended", "Claims that ended, by how.", "state"),
    gauge("topics", "Topics."),
    gauge("schedules", "Recurring schedules."),
    gauge("jobs_running", "Jobs that have not ended."),
    gauge("producers", "Idempotent producers remembered."),
    counter("producers_dropped", "Producers forgotten for lack of room."),
    counter(
        "producer_answers_dropped",
        "First answers dropped for lack of room.",
    ),
)
_TRANSACTIONS: Final = (
    gauge("transactions_open", "Open transactions."),
    gauge("staged_bytes", "Bytes staged in open transactions."),
    gauge("staged_rows", "Messages staged in open transactions."),
    gauge("publish_lag_rows", "Committed messages that are not in their hours yet."),
    gauge(
        "publish_lag_seconds",
        "Time since the commit of the oldest message that is not in its hour yet.",
    ),
    counter("discarded_rows", "Staged messages that were never committed."),
    counter("published_rows", "Messages of committed transactions that have reached their hours."),
    counter("transactions_dropped", "Ended transactions forgotten for lack of room."),
)
_REQUESTS: Final = (
    histogram(
        "request_seconds",
        "From a request to its answer, by call.",
        "face",
        "call",
    ),
    counter("slow_requests", "Requests that took longer than a second.", "face"),
    counter(
        "problems",
        "Refusals and errors, by code.",
        "face",
        "code",
    ),
    counter("http_fast_requests", "HTTP requests served by the fast lane."),
    gauge("connections", "Open connections of clients.", "face"),
    gauge("waiting_consumers", "Long polls that wait."),
    gauge("streams", "Open streams, of deliveries or of live reads."),
)
_LOG_AND_DISK: Final = (
    histogram("fsync_seconds", "One write and fdatasync of the log."),
    histogram(
        "commit_wait_seconds",
        "From the end of a turn that appended to its commit.",
    ),
    counter("commits", "Group commits (one fdatasync each)."),
    gauge("log_end_position", "End of the physical log."),
    gauge("log_durable_position", "How far the physical log is durable."),
    gauge("log_applied_position", "How far the physical log is applied."),
    gauge("log_first_position", "Oldest position kept."),
    gauge(
        "disk_bytes",
        "Disk space of the data folder, by part.",
        "part",
    ),
    gauge("disk_free_bytes", "Free space of the data folder's file system."),
    gauge("disk_full", "1 while sends are refused."),
    gauge("reserve_bytes", "Allocated disk space that is used when the disk is full."),
    gauge("reserve_target_bytes", "Size of the reserve when it is completely allocated."),
    gauge("hour_folders", "Hours that hold rows."),
    gauge("archive_held_folders", "Ended hours that are kept only for the archive."),
    gauge(
        "backup_timestamp_seconds",
        "Unix time of the newest backup by `delaylog backup`.",
    ),
    gauge("tail_bytes", "Rows and bodies waiting for the splitter."),
    gauge("dirty_state_bytes", "State pages newer than their files."),
    gauge(
        "memory_bytes",
        "Memory by use.",
        "use",
    ),
    counter("checkpoints", "Checkpoints written."),
    histogram("checkpoint_seconds", "Duration of a checkpoint, by step.", "step"),
    histogram(
        "recovery_seconds",
        "Duration of opening the data folder, by step.",
        "step",
    ),
)
_PROCESS: Final = (
    gauge("info", "1, with the release.", "version"),
    histogram("loop_lag_seconds", "How late timers of the event loop fire."),
    gauge("loop_lag_max_seconds", "Longest lag of the event loop since the start."),
    gauge("tick_second", "Second that dispatch has reached."),
    counter("wheel_turns", "Slots of the wheel that expired."),
    counter("clock_steps", "Steps of the wall clock."),
    gauge("clock_held_seconds", "How far the clock waits for wall time after a backward step."),
    gauge("epoch", "Leadership counter."),
    gauge("feature_level", "Feature level of the log: rises once all members support it."),
    counter("reloads", "Reloads of configured files, by source and result.", "source", "result"),
    gauge(
        "reload_failed",
        "1 while the newest reload of a source has failed.",
        "source",
    ),
    gauge(
        "certificate_expires_timestamp_seconds",
        "When the certificate ends, in Unix time.",
        "source",
    ),
    gauge(
        "certificate_faults",
        "Faults of the certificates in use.",
        "severity",
    ),
    counter(
        "audit_lost_lines",
        "Lines lost while the audit log could not be written.",
    ),
    gauge(
        "audit_failing",
        "1 while the audit log cannot be written and administrative calls are refused.",
    ),
)
_CLUSTER: Final = (
    gauge("cluster_role", "1 for the current role of this node.", "role"),
    gauge("cluster_epoch", "Counter of the newest epoch that this node knows."),
    gauge("cluster_commit_position", "End of the log that is known to be committed."),
    gauge("cluster_applied_position", "End of the log that is applied here."),
    gauge("cluster_connected_peers", "Peers that are connected."),
    gauge("cluster_leader_known", "1 while a leader is known and heard within a second."),
    gauge(
        "cluster_majority",
        "1 while a majority is connected and acknowledges the log.",
    ),
    gauge(
        "cluster_gate_age_seconds",
        "Age of the newest tick of a majority; leader only.",
    ),
    gauge(
        "cluster_follower_lag_bytes",
        "Log that a follower does not have on its disk; leader only.",
        "node",
    ),
    histogram(
        "cluster_follower_lag_seconds",
        "Age of the log that a follower lacks; leader only.",
        "node",
    ),
    gauge("cluster_missing_voters", "Other voters that are not connected to this node."),
    gauge(
        "cluster_clock_offset_seconds",
        "How far a peer's clock is ahead of this node's.",
        "peer",
    ),
    gauge(
        "cluster_own_clock_offset_seconds",
        "How far this node's clock is ahead of the median.",
    ),
    gauge(
        "cluster_copies_under_way",
        "Copies of a data folder sent or received now.",
        "direction",
    ),
    counter("cluster_copies", "Copies of a data folder that have ended.", "direction", "result"),
    gauge("cluster_unfit", "1 while this node is not fit to lead, by reason.", "reason"),
    gauge("cluster_sync_seconds", "Median of recent syncs of the log; 0 without any."),
    gauge("cluster_sync_max_seconds", "Longest recent sync of the log."),
    counter(
        "cluster_automatic_handovers",
        "Hand-overs that a leader began itself.",
        "reason",
        "result",
    ),
    counter("cluster_elections_won", "Times the election chose this node."),
    counter("cluster_leaderships", "Times this node began to serve as the leader."),
    counter("cluster_resignations", "Times it was chosen and did not serve in time."),
    counter("cluster_handovers", "Hand-overs by this node that succeeded."),
    counter("cluster_handovers_failed", "Hand-overs by this node that failed."),
    counter(
        "cluster_lost_commits",
        "Times a leader lacked frames committed here.",
    ),
    counter(
        "cluster_epochs_refused",
        "Messages refused for an epoch below the promised one.",
    ),
    counter(
        "cluster_peers_refused",
        "Connections and messages between nodes refused.",
        "reason",
    ),
    gauge(
        "cluster_election_datagram_age_seconds",
        "Age of a peer's newest datagram; raftos only.",
        "node",
    ),
    counter(
        "cluster_election_datagrams_refused",
        "Election datagrams refused.",
        "reason",
    ),
)
SECTIONS: Final = {
    "Messages": _MESSAGES,
    "Transactions": _TRANSACTIONS,
    "Requests": _REQUESTS,
    "Log, disk and memory": _LOG_AND_DISK,
    "Process": _PROCESS,
    "Push": metrics_of(PUSH),
    "Cluster": _CLUSTER,
    "Redis clients": metrics_of(REDIS),
}
"""All metrics, in the order of docs/METRICS.md."""
METRICS: Final = {row.name: row for section in SECTIONS.values() for row in section}
"""The table by name."""


# ------------------------------------------------------------------------- families of a scrape


def family(
    name: str, samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily | CounterMetricFamily:
    """The gauge or counter `name`, with (values of its labels, value) for each sample."""
    row = METRICS[name]
    kind = GaugeMetricFamily if row.kind == "gauge" else CounterMetricFamily
    made = kind(row.name, row.text, labels=row.labels)
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


def families(values: Mapping[str, float]) -> Iterator[Metric]:
    """Gauges and counters without labels, by name."""
    for name, value in values.items():
        yield family(name, [((), value)])


def by_label(name: str, values: Mapping[str, float]) -> Metric:
    """A gauge or counter with one label, by the value of that label."""
    return family(name, [((label,), value) for label, value in values.items()])
