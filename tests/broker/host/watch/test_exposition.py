"""The fast text of histograms has the lines that prometheus_client writes of the same values."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar

from delaylog.broker.engine.watch.histogram import BOUNDS_MS, Example, Histogram
from delaylog.broker.host.watch.metrics import MS, Sampled, histogram_text
from delaylog.broker.host.watch.metrics_table import METRICS

NAMES = {
    "delaylog_fsync_seconds": (),
    "delaylog_request_seconds": ("http", "send"),
    "delaylog_lateness_seconds": ("n",),
}
"""Rows without labels, with labels before `le` in the alphabet, and after it."""
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.just("\n"), max_size=8)


class _One(CollectorRegistry):
    def __init__(self, family: Metric) -> None:
        super().__init__()
        self.family = family

    def collect(self) -> Any:
        yield self.family


def theirs(sampled: Sampled) -> Metric:
    """What the library makes of the same values."""
    row = METRICS[sampled.name]
    made = HistogramMetricFamily(row.name, row.text, labels=row.labels)
    for labels, histogram in sampled.samples:
        bounds = [*(str(bound * sampled.unit) for bound in histogram.bounds), "+Inf"]
        buckets: list[Any] = []
        for at, count in enumerate(accumulate(histogram.counts)):
            found = histogram.examples.get(at)
            exemplar = found and Exemplar(
                {found.label: found.text}, found.value * sampled.unit, found.at_ms / 1000
            )
            buckets.append((bounds[at], float(count), exemplar))
        made.add_metric(labels, buckets, histogram.sum * sampled.unit)
    return made


def lines_of(text: bytes) -> tuple[list[str], list[tuple[str, float]]]:
    """The lines but for the sums, which may be written in several ways, and the sums' values."""
    lines = sorted(text.decode().split("\n"))
    sums = [line.rpartition(" ") for line in lines if "_seconds_sum" in line]
    others = [line for line in lines if "_seconds_sum" not in line]
    return others, [(name, float(value)) for name, _, value in sums]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("openmetrics", [False, True], ids=["plain", "openmetrics"])
@given(
    topics=st.dictionaries(
        TEXTS, st.lists(st.integers(0, 400_000), max_size=20), min_size=1, max_size=3
    ),
    label=TEXTS,
)
def test_both_texts_are_the_same(
    topics: dict[str, list[int]], label: str, name: str, openmetrics: bool
) -> None:
    samples = []
    for topic, values in topics.items():
        histogram = Histogram(BOUNDS_MS)
        for value in values:
            histogram.note(value)
            histogram.keep_example(Example("message_id", label, value, 1_700_000_000_123))
        labels = NAMES[name] if len(NAMES[name]) != 1 else (*NAMES[name], topic)
        samples.append((labels, histogram))
    if name != "delaylog_lateness_seconds":
        samples = samples[:1]
    sampled = Sampled(name, samples, MS)
    ours = histogram_text(sampled, openmetrics=openmetrics)
    if openmetrics:
        ours += b"# EOF\n"
    generate = generate_openmetrics if openmetrics else generate_latest
    assert lines_of(ours) == lines_of(generate(_One(theirs(sampled))))
