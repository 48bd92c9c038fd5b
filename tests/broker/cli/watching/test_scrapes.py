"""Parsing of metrics, rates, and quantiles, against what prometheus_client writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from delaylog.broker.cli.watching.scrapes import Change, Scrape, parse_scrape

BOUNDS = (0.01, 0.1, 1.0)
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.just("\n"), max_size=8)


def scrape(registry: CollectorRegistry, at_s: float) -> Scrape:
    return parse_scrape(generate_latest(registry).decode(), at_s)


@given(st.dictionaries(TEXTS, st.integers(0, 1 << 40), max_size=4))
def test_labels_and_values_are_those_written(values: dict[str, int]) -> None:
    """Purpose: no topic's name confuses the parser. Method: what the library writes of any text."""
    registry = CollectorRegistry()
    counter = Counter("a", "text", ["topic", "x"], registry=registry)
    for topic, value in values.items():
        counter.labels(topic, "1").inc(value)
    found = scrape(registry, 0.0)
    assert {
        dict(each)["topic"]: n for each, n in found.samples.get("a_total", {}).items()
    } == values
    for topic, value in values.items():
        assert found.value("a_total", topic=topic) == value
    assert found.value("a_total", x="1") == sum(values.values())
    assert found.value("a_total", topic="no such topic") == found.value("b") == 0


def test_rates_and_quantiles_are_of_the_interval() -> None:
    registry = CollectorRegistry()
    counter = Counter("sent", "text", registry=registry)
    late = Histogram("late", "text", ["topic"], buckets=BOUNDS, registry=registry)
    counter.inc(5)
    late.labels("t").observe(0.5)
    before = scrape(registry, 10.0)
    counter.inc(30)
    for value in (0.005, 0.05, 0.05, 7.0):
        late.labels("t").observe(value)
    late.labels("u").observe(0.5)
    change = Change(before, scrape(registry, 12.0))
    assert change.per_second("sent_total") == 15
    assert [n for _, n in change.buckets("late", topic="t")] == [1, 2, 0, 1]
    assert [n for _, n in change.buckets("late")] == [1, 2, 1, 1]
    # The second of four is the first of two in (0.01, 0.1].
    assert change.quantile(0.5, "late", topic="t") == pytest.approx(0.01 + 0.09 / 2)
    assert change.quantile(0.99, "late", topic="t") == 1.0, "above the last bound: that bound"
    assert change.quantile(0.5, "late", topic="w") is None


def test_a_restart_begins_at_zero() -> None:
    """Purpose: no negative rates. Method: the second scrape is of a new process."""
    scrapes = []
    for at_s, count in ((0.0, 100), (2.0, 6)):
        registry = CollectorRegistry()
        Counter("sent", "text", registry=registry).inc(count)
        late = Histogram("late", "text", buckets=BOUNDS, registry=registry)
        for _ in range(count):
            late.observe(0.5)
        scrapes.append(scrape(registry, at_s))
    change = Change(*scrapes)
    assert change.per_second("sent_total") == 3
    assert [n for _, n in change.buckets("late")] == [0, 0, 6, 0]
