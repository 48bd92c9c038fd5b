"""The metrics of clocks, missing voters and copies. Read at scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from delaylog.broker.cluster.member import ClusterMember


def watch_metrics(member: ClusterMember) -> Iterator[Metric]:
    """Yield the metrics of one member."""
    clocks, copies = member.watch.clocks, member.copies
    yield GaugeMetricFamily(
        "delaylog_cluster_missing_voters",
        "Other voters that are not connected to this node.",
        len(member.watch.missing_voters()),
    )
    offsets = GaugeMetricFamily(
        "delaylog_cluster_clock_offset_seconds",
        "How far the clock of a connected peer is ahead of this node's.",
        labels=["peer"],
    )
    for peer, offset in clocks.peers.items():
        offsets.add_metric([str(peer)], offset.us / 1e6)
    yield offsets
    own = clocks.own
    if own is not None:
        yield GaugeMetricFamily(
            "delaylog_cluster_own_clock_offset_seconds",
            "How far this node's clock is ahead of the median of all; needs three clocks.",
            own.us / 1e6,
        )
    under_way = GaugeMetricFamily(
        "delaylog_cluster_copies_under_way",
        "Copies of a data folder that are sent or received at the moment.",
        labels=["direction"],
    )
    under_way.add_metric(["give"], int(copies.giving))
    under_way.add_metric(["take"], int(copies.receiver.receiving))
    yield under_way
    ended = CounterMetricFamily(
        "delaylog_cluster_copies",
        "Copies of a data folder that have ended.",
        labels=["direction", "result"],
    )
    ended.add_metric(["give", "done"], copies.giver.given)
    ended.add_metric(["give", "failed"], copies.giver.failed)
    ended.add_metric(["take", "done"], copies.receiver.taken)
    ended.add_metric(["take", "failed"], copies.receiver.failed)
    yield ended
