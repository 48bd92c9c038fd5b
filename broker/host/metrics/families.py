"""Metric families of the table: a collector gives names and values, the table gives the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from delaylog.broker.host.metrics.table import METRICS


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
