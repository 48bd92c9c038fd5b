"""The metrics of a member: role, positions, lag of followers, refusals. Read at scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from delaylog.broker.cluster.fitness.metrics import fitness_metrics
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.members.operator_calls import ROLES, OperatorCalls
from delaylog.broker.cluster.peers.counts import Refused
from delaylog.broker.cluster.watch.watch_metrics import watch_metrics
from delaylog.replication.epochs import epoch_counter


class ClusterMetrics(Collector):
    """The metrics of one member."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._calls = OperatorCalls(member)

    def collect(self) -> Iterator[Metric]:
        """Read the member."""
        member, replication = self._member, self._member.replication
        role = GaugeMetricFamily(
            "delaylog_cluster_role", "1 for the current role of this node.", labels=["role"]
        )
        mine = self._calls.role
        for name in ROLES:
            role.add_metric([name], int(name == mine))
        yield role
        promised = 0 if replication is None else replication.promised
        gauges = {
            "epoch": ("Counter of the newest epoch that this node knows.", epoch_counter(promised)),
            "commit_position": (
                "End of the log that is known to be committed.",
                0 if replication is None else replication.commit,
            ),
            "applied_position": ("End of the log that is applied here.", member.position),
            "connected_peers": ("Peers that are connected.", len(member.transport.connected())),
            "leader_known": ("1 while a leader is known.", int(member.leader is not None)),
        }
        age_ms = member.gate_age_ms()
        if age_ms is not None:
            text = "Age of the newest tick that a majority has taken; on the leader only."
            gauges["gate_age_ms"] = (text, age_ms)
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"delaylog_cluster_{name}", text, value)
        yield self._lag()
        yield from watch_metrics(member)
        yield from fitness_metrics(member.fitness)
        yield from self._counters()

    def _lag(self) -> Metric:
        lag = GaugeMetricFamily(
            "delaylog_cluster_follower_lag_bytes",
            "Log that a follower does not have durably, all of it until it connects; on the "
            "leader only.",
            labels=["node"],
        )
        replication = self._member.replication
        if replication is not None and replication.leader is not None:
            for node, one in replication.leader.progress.items():
                lag.add_metric([str(node)], max(self._member.files.log_end - one.match, 0))
        return lag

    def _counters(self) -> Iterator[Metric]:
        counts = self._member.counts
        plain = {
            "elections_won": ("Times the election chose this node.", counts.chosen),
            "leaderships": ("Times this node began to serve as the leader.", counts.leaderships),
            "resignations": ("Times it was chosen and did not serve in time.", counts.resigned),
            "handovers": ("Hand-overs by this node that succeeded.", counts.handed_over),
            "handovers_failed": ("Hand-overs by this node that failed.", counts.handovers_failed),
            "lost_commits": (
                "Times a leader lacked frames committed on this node, which was quarantined then.",
                counts.lost_commits,
            ),
            "epochs_refused": (
                "Messages that were refused for an epoch below the promised one.",
                counts.refused_epochs,
            ),
        }
        for name, (text, value) in plain.items():
            yield CounterMetricFamily(f"delaylog_cluster_{name}", text, value)
        refused = {
            "peers_refused": (
                "Connections and messages between nodes that were refused.",
                {str(k): self._member.transport.counts.refused.get(k, 0) for k in Refused},
            ),
            "election_datagrams_refused": (
                "Datagrams of the election that were refused.",
                self._member.oracle.refused,
            ),
        }
        for name, (text, by_reason) in refused.items():
            counter = CounterMetricFamily(f"delaylog_cluster_{name}", text, labels=["reason"])
            for reason, value in by_reason.items():
                counter.add_metric([reason], value)
            yield counter
