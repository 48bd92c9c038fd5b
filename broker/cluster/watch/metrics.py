"""The metrics of a member: role, positions, lag of followers, refusals. Read at scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.cluster.fitness.metrics import fitness_metrics
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.members.operator_calls import ROLES, OperatorCalls
from delaylog.broker.cluster.peers.counts import Refused
from delaylog.broker.cluster.watch.watch_metrics import watch_metrics
from delaylog.broker.host.metrics.families import by_label, families
from delaylog.replication.epochs import epoch_counter


class ClusterMetrics(Collector):
    """The metrics of one member."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._calls = OperatorCalls(member)

    def collect(self) -> Iterator[Metric]:
        """Read the member."""
        member, replication = self._member, self._member.replication
        mine = self._calls.role
        yield by_label("delaylog_cluster_role", {name: int(name == mine) for name in ROLES})
        promised = 0 if replication is None else replication.promised
        values: dict[str, float] = {
            "epoch": epoch_counter(promised),
            "commit_position": 0 if replication is None else replication.commit,
            "applied_position": member.position,
            "connected_peers": len(member.transport.connected()),
            "leader_known": int(member.leader is not None and member.leader_works),
            "majority": int(member.watch.majority),
            **self._counters(),
        }
        age_ms = member.gate_age_ms()
        if age_ms is not None:
            values["gate_age_seconds"] = age_ms / 1000
        yield from families({f"delaylog_cluster_{name}": value for name, value in values.items()})
        yield by_label("delaylog_cluster_follower_lag_bytes", self._lag())
        yield from watch_metrics(member)
        yield from fitness_metrics(member.fitness)
        refused = member.transport.counts.refused
        yield by_label(
            "delaylog_cluster_peers_refused_total",
            {str(why): refused.get(why, 0) for why in Refused},
        )
        yield by_label("delaylog_cluster_election_datagrams_refused_total", member.oracle.refused)

    def _lag(self) -> dict[str, float]:
        """Bytes that each follower lacks; nothing on a follower."""
        replication = self._member.replication
        if replication is None or replication.leader is None:
            return {}
        end = self._member.files.log_end
        return {
            str(node): max(end - one.match, 0) for node, one in replication.leader.progress.items()
        }

    def _counters(self) -> dict[str, int]:
        counts = self._member.counts
        values = {
            "elections_won": counts.chosen,
            "leaderships": counts.leaderships,
            "resignations": counts.resigned,
            "handovers": counts.handed_over,
            "handovers_failed": counts.handovers_failed,
            "lost_commits": counts.lost_commits,
            "epochs_refused": counts.refused_epochs,
        }
        return {f"{name}_total": value for name, value in values.items()}
