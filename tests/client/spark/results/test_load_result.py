"""What a result says of itself: what was added, what is missing and why."""

from __future__ import annotations

import pytest

from pyspark_delaylog.load_result import LoadResult

KEPT = {"created": 10, "replaced": 2, "kept": 985, "rejected": 3}


@pytest.mark.parametrize(
    ("result", "added", "line"),
    [
        (
            LoadResult("n", "committed", 1_000, published=1_000, results={"created": 1_000}),
            1_000,
            "n: 1,000 of 1,000 rows added",
        ),
        (
            LoadResult("n", "committed", 1_000, published=1_000, results=KEPT),
            12,
            "n: 12 of 1,000 rows added; 985 kept, since a message with the same id lives, "
            "3 rejected, since a message with the same id lives",
        ),
        (
            LoadResult("n", "committed", 1_000, published=7, results={"created": 7}),
            7,
            "n: 1,000 rows committed, 7 of them published so far; "
            "last_result().refresh(wait=True) gives the counts of all",
        ),
        (
            LoadResult("n", "already", 5, published=5, results={"created": 5}),
            0,
            "n: 0 of 5 rows added; an earlier run of this name has added them",
        ),
        (
            LoadResult("q.3", "already", 5, published=5, results={"created": 5}, batch=3),
            0,
            "q.3 (batch 3): 0 of 5 rows added; "
            "this batch was committed before, so none of its rows was sent",
        ),
        (
            LoadResult("n", "sent", 5, 2, published=5, results={"created": 5}, repeated_calls=1),
            5,
            "n: 5 of 5 rows added; 2 put aside; 1 calls repeated",
        ),
    ],
)
def test_a_line_for_a_person(result: LoadResult, added: int, line: str) -> None:
    assert (result.added, str(result)) == (added, line)


def test_a_repeated_micro_batch_is_not_partial() -> None:
    """It is how Spark recovers, and must not stop a query with failOnPartial."""
    assert LoadResult("q.3", "already", 5, batch=3).shortfall == ""
    assert LoadResult("n", "already", 5).shortfall != ""
