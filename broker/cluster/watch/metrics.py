"""The metrics of a member: role, positions, lag of followers, refusals. Read at scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.members.operator_calls import ROLES, OperatorCalls
from delaylog.broker.cluster.peers.handshake import Refused
from delaylog.broker.cluster.watch.fitness import Reason, Unfit
from delaylog.broker.cluster.watch.fitness_watch import RESULTS, FitnessWatch
from delaylog.broker.host.watch.metrics_table import by_label, families, family
from delaylog.replication.epochs import epoch_counter

# Metrics of a member's fitness, and of the moves of the leadership that it caused.


def fitness_metrics(watch: FitnessWatch) -> Iterator[Metric]:
    """Read the watch."""
    yield by_label(
        "delaylog_cluster_unfit", {each.value: int(watch.unfit is each) for each in Unfit}
    )
    yield from families(
        {
            "delaylog_cluster_sync_seconds": watch.mine.sync_ms / 1000,
            "delaylog_cluster_sync_max_seconds": watch.mine.sync_max_ms / 1000,
        }
    )
    yield family(
        "delaylog_cluster_automatic_handovers_total",
        (((why.value, result), watch.moves[why, result]) for why in Reason for result in RESULTS),
    )


# The metrics of clocks, missing voters and copies. Read at scrape.


def watch_metrics(member: ClusterMember) -> Iterator[Metric]:
    """Yield the metrics of one member."""
    clocks, copies = member.watch.clocks, member.copies
    yield from families({"delaylog_cluster_missing_voters": len(member.watch.missing_voters())})
    yield by_label(
        "delaylog_cluster_clock_offset_seconds",
        {str(peer): offset.us / 1e6 for peer, offset in clocks.peers.items()},
    )
    yield by_label(
        "delaylog_cluster_election_datagram_age_seconds",
        {
            str(peer): age_ms / 1000
            for peer, age_ms in member.watch.datagram_ages_ms().items()
            if age_ms is not None
        },
    )
    own = clocks.own
    if own is not None:
        yield from families({"delaylog_cluster_own_clock_offset_seconds": own.us / 1e6})
    yield by_label(
        "delaylog_cluster_copies_under_way",
        {"give": int(copies.giving), "take": int(copies.receiver.receiving)},
    )
    yield family(
        "delaylog_cluster_copies_total",
        [
            (("give", "done"), copies.giver.given),
            (("give", "failed"), copies.giver.failed),
            (("take", "done"), copies.receiver.taken),
            (("take", "failed"), copies.receiver.failed),
        ],
    )


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
