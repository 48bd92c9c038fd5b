"""The metrics of clocks, missing voters and copies. Read at scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.host.metrics.families import by_label, families, family


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
