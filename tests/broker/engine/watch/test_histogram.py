"""Histograms count what a plain list would, whichever way a batch takes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.watch.histogram import EXAMPLE_EVERY_MS, Example, Histogram

BOUNDS = (1, 5, 100)


def expected(values: list[int]) -> list[int]:
    """Values by bucket: a bound belongs to its own bucket."""
    return [
        sum(low < value <= high for value in values)
        for low, high in ((-(10**9), 1), (1, 5), (5, 100), (100, 10**9))
    ]


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=40), max_size=8))
def test_batches_count_like_single_values(batches: list[list[int]]) -> None:
    """Purpose: the short cuts change nothing. Method: random batches against a plain model."""
    histogram = Histogram(BOUNDS)
    for late in batches:
        histogram.note_late(np.array([1_000 - each for each in late], np.int64), 1_000)
    values = [each for late in batches for each in late]
    assert histogram.counts == expected(values)
    assert (histogram.sum, histogram.count) == (sum(values), len(values))
    twice = Histogram(BOUNDS)
    twice.note(7, 3)
    twice.add(histogram)
    assert twice.counts == expected([7, 7, 7, *values])
    assert twice.sum == 21 + sum(values)


def test_examples_are_rare_and_in_their_buckets() -> None:
    """An example is asked for once a second; a step of the clock back does not stop them."""
    histogram = Histogram(BOUNDS)
    assert histogram.wants_example(10_000)
    assert not histogram.wants_example(10_000 + EXAMPLE_EVERY_MS - 1)
    assert histogram.wants_example(10_000 + EXAMPLE_EVERY_MS)
    assert histogram.wants_example(5_000)
    histogram.keep_example(Example("message_id", "a", 3, 5_000))
    histogram.keep_example(Example("message_id", "b", 5, 6_000))
    histogram.keep_example(Example("message_id", "c", 900, 6_000))
    assert {at: each.text for at, each in histogram.examples.items()} == {1: "b", 3: "c"}
