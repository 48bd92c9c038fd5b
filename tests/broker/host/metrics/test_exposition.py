"""The fast text of histograms has the lines that prometheus_client writes of the same values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from delaylog.broker.engine.watch.histogram import Example, Histogram
from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.exposition import histogram_text
from delaylog.broker.host.metrics.families import histograms

NAME = "delaylog_lateness_seconds"
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.just("\n"), max_size=8)


class _One(CollectorRegistry):
    def __init__(self, family: Metric) -> None:
        super().__init__()
        self.family = family

    def collect(self) -> Any:
        yield self.family


def lines_of(text: bytes) -> tuple[list[str], list[tuple[str, float]]]:
    """The lines but for the sums, which may be written in several ways, and the sums' values."""
    lines = sorted(text.decode().split("\n"))
    sums = [line.rpartition(" ") for line in lines if line.startswith(f"{NAME}_sum")]
    others = [line for line in lines if not line.startswith(f"{NAME}_sum")]
    return others, [(name, float(value)) for name, _, value in sums]


@pytest.mark.parametrize("openmetrics", [False, True], ids=["plain", "openmetrics"])
@given(
    topics=st.dictionaries(
        TEXTS, st.lists(st.integers(0, 400_000), max_size=20), min_size=1, max_size=3
    ),
    label=TEXTS,
)
def test_both_texts_are_the_same(
    topics: dict[str, list[int]], label: str, openmetrics: bool
) -> None:
    samples = []
    for topic, values in topics.items():
        histogram = Histogram(BOUNDS_MS)
        for value in values:
            histogram.note(value)
            histogram.keep_example(Example("message_id", label, value, 1_700_000_000_123))
        samples.append((("n", topic), histogram))
    family = histograms(NAME, samples, unit=0.001)
    ours = histogram_text(NAME, samples, openmetrics=openmetrics)
    if openmetrics:
        ours += b"# EOF\n"
    theirs = (generate_openmetrics if openmetrics else generate_latest)(_One(family))
    assert lines_of(ours) == lines_of(theirs)
