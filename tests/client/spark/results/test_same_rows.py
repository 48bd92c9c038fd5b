"""The sum by which a repeated load is compared: the same for the same rows, and for no others."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delaylog.deliveries import RowSum, marker_of, sum_of

TEXTS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


def binary(texts: list[bytes | None]) -> Any:
    return pa.array(texts, pa.binary())


@given(texts=TEXTS, cut=st.integers(0, 30), order=st.randoms())
def test_order_and_partitions_do_not_change_the_sum(
    texts: list[bytes | None], cut: int, order: Random
) -> None:
    whole = marker_of("load", sum_of(binary(texts)))
    parts = [binary(texts).slice(0, cut), binary(texts).slice(cut)]
    assert marker_of("load", sum(map(sum_of, parts))) == whole
    order.shuffle(texts)
    assert marker_of("load", sum_of(binary(texts))) == whole


@pytest.mark.parametrize("number", ["{:05d}", "{:05o}", "{:04x}"])
def test_the_ids_of_another_day_are_other_rows(number: str) -> None:
    """A sum of CRC-32 is the same for most of these days, because the checksum is linear."""
    days = [
        [f"2026-11-{day:02d}-{number.format(each)}" for each in range(2**12)]
        for day in range(1, 31)
    ]
    assert len({sum_of(pa.array(ids)) for ids in days}) == 30


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_the_type_of_a_column_does_not_change_the_sum(kind: Any) -> None:
    texts = pa.array(["", None, "a", "reminder-17", "z" * 200])
    assert sum_of(texts.cast(kind)) == sum_of(texts)


def test_batches_are_passed_on_and_summed_by_id_or_body() -> None:
    named = pa.record_batch({"value": pa.array(["x", "y"]), "id": pa.array(["1", "2"])})
    bare = named.drop_columns(["id"])
    for batch, name in ((named, "id"), (bare, "value")):
        total = RowSum()
        assert list(total.watch([batch, batch])) == [batch, batch]
        assert (total.rows, total.sum) == (4, 2 * sum_of(batch.column(name)))
    counted = RowSum(adds=False)
    assert list(counted.watch([named])) == [named]
    assert (counted.rows, counted.sum) == (2, 0)
