"""Metrics of a member's fitness, and of the moves of the leadership that it caused."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from delaylog.broker.cluster.fitness.judging import Unfit
from delaylog.broker.cluster.fitness.planning import Reason
from delaylog.broker.cluster.fitness.watch import RESULTS, FitnessWatch
from delaylog.broker.host.metrics.families import by_label, families, family


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
