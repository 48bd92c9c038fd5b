"""Rows of many topics: sorted, in their order within a topic, and cut into runs."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delaylog.task_load import MixedRows, groups_of_runs, run_starts, runs_of
from tests.client.spark.batches import batch_of

TOPICS = st.lists(st.lists(st.sampled_from("abcd"), max_size=12), min_size=1, max_size=4)


@given(TOPICS, st.integers(1, 5))
def test_rows_are_sorted_stably_and_cut_where_a_topic_ends(
    batches: list[list[str]], runs_max: int
) -> None:
    """Against Python's sort and groupby."""
    mixed, model = MixedRows(), []
    for topics in batches:
        ids = [f"{len(model) + at:03d}" for at in range(len(topics))]
        model += list(zip(topics, ids, strict=True))
        mixed.add(batch_of(ids, topic=pa.array(topics, pa.string())))
    assert (mixed.size > 0) == bool(model)
    found = mixed.take()
    assert mixed.size == 0
    assert mixed.take() == []
    model.sort(key=lambda pair: pair[0])
    rows = [
        pair
        for batch in found
        for pair in zip(batch["topic"].to_pylist(), batch["id"].to_pylist(), strict=True)
    ]
    assert rows == model
    for batch in found:
        topics = batch["topic"].to_pylist()
        expected = [(topic, len(list(group))) for topic, group in groupby(topics)]
        assert [(topic, count) for topic, _, count in runs_of(batch)] == expected
        assert all(topics[first] == topic for topic, first, _ in runs_of(batch))
        groups = list(groups_of_runs(batch, runs_max))
        assert [row for group in groups for row in group["topic"].to_pylist()] == topics
        assert all(len(run_starts(group)) <= runs_max for group in groups)
