"""Metric families of the table: a collector gives names and values, the table gives the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar

from delaylog.broker.engine.watch.histogram import Example, Histogram
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


def histograms(
    name: str, samples: Iterable[tuple[Sequence[str], Histogram]], *, unit: float = 1.0
) -> HistogramMetricFamily:
    """The histogram `name`; `unit` = seconds of the histograms' unit."""
    row = METRICS[name]
    made = HistogramMetricFamily(row.name, row.text, labels=row.labels)
    for labels, histogram in samples:
        bounds = [*(str(bound * unit) for bound in histogram.bounds), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for at, count in enumerate(accumulate(histogram.counts)):
            example = histogram.examples.get(at)
            bucket = (bounds[at], float(count))
            buckets.append(bucket if example is None else (*bucket, _exemplar(example, unit)))
        made.add_metric(labels, buckets, histogram.sum * unit)
    return made


def _exemplar(example: Example, unit: float) -> Exemplar:
    return Exemplar({example.label: example.text}, example.value * unit, example.at_ms / 1000)
