"""Metrics of a member's fitness, and of the moves of the leadership that it caused."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from delaylog.broker.cluster.fitness.judging import Unfit
from delaylog.broker.cluster.fitness.planning import Reason
from delaylog.broker.cluster.fitness.watch import RESULTS, FitnessWatch


def fitness_metrics(watch: FitnessWatch) -> Iterator[Metric]:
    """Read the watch."""
    unfit = GaugeMetricFamily(
        "delaylog_cluster_unfit",
        "1 while this node is not fit to lead, by reason.",
        labels=["reason"],
    )
    for reason in Unfit:
        unfit.add_metric([reason.value], int(watch.unfit is reason))
    yield unfit
    for name, text, value in (
        ("sync_ms", "Median of recent syncs of the log; 0 without any.", watch.mine.sync_ms),
        ("sync_max_ms", "Longest recent sync of the log.", watch.mine.sync_max_ms),
    ):
        yield GaugeMetricFamily(f"delaylog_cluster_{name}", text, value)
    moves = CounterMetricFamily(
        "delaylog_cluster_automatic_handovers",
        "Hand-overs that this leader began by itself, by reason and result.",
        labels=["reason", "result"],
    )
    for why in Reason:
        for result in RESULTS:
            moves.add_metric([why.value, result], watch.moves[why, result])
    yield moves
