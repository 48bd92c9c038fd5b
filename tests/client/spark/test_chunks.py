"""Batches of any size become chunks within both limits, with every row in its place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delaylog.task_load import ROW_BYTES, Chunk, Chunker, row_bytes
from tests.client.spark.batches import HEADERS


def of(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    """Rows with bodies of these sizes, numbered by priority."""
    numbers = range(first, first + len(sizes))
    return pa.record_batch(
        {"value": [b"x" * size for size in sizes], "priority": pa.array(numbers, pa.int32())}
    )


def read(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=20), max_size=10),
    st.integers(1, 15),
    st.integers(1, 500),
)
def test_chunks_keep_the_limits_and_the_order(
    sizes: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    chunker, chunks, first = Chunker(rows_max, bytes_max), [], 0
    for each in sizes:
        chunks += list(chunker.add(of(each, first)))
        first += len(each)
    chunks += list(chunker.rest())
    assert list(chunker.rest()) == []
    numbers = []
    for chunk in chunks:
        table = read(chunk.body(None))
        assert table.num_rows == chunk.rows <= rows_max
        taken = sum(len(value) + ROW_BYTES for value in table["value"].to_pylist())
        assert taken == chunk.size
        assert taken <= bytes_max or chunk.rows == 1
        numbers += table["priority"].to_pylist()
    assert numbers == list(range(first))


def test_full_chunks_are_as_full_as_they_may_be() -> None:
    chunker = Chunker(4, 10_000)
    rows = [chunk.rows for chunk in chunker.add(of([1] * 10))]
    assert (rows, chunker.size) == ([4, 4], 2 * (1 + ROW_BYTES))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_body_is_read_again_whatever_packs_it(compression: str | None) -> None:
    chunk = Chunk([of([100] * 100)], 100)
    assert read(chunk.body(compression)) == pa.Table.from_batches(chunk.batches)
    assert (len(chunk.body(compression)) < 5_000) == (compression is not None)


def test_one_row_can_be_taken_out() -> None:
    chunk = Chunk([of([1, 2]), of([3, 4, 5], 2)], 5)
    assert chunk.row(3).column("priority").to_pylist() == [3]
    rest = chunk.without(3)
    assert rest.rows == 4
    assert read(rest.body(None))["priority"].to_pylist() == [0, 1, 2, 4]
    assert read(rest.without(0).without(0).body(None))["priority"].to_pylist() == [2, 4]
    with pytest.raises(IndexError):
        chunk.row(5)


def test_texts_count_and_headers_by_their_mean() -> None:
    batch = pa.record_batch(
        {
            "value": [b"12345", None],
            "id": ["ä", None],
            "headers": pa.array([[{"key": "k", "value": b"v"}], None], HEADERS),
        }
    )
    plain = row_bytes(batch.drop_columns(["headers"]))
    assert plain.tolist() == [ROW_BYTES + 7, ROW_BYTES]
    assert (row_bytes(batch) > plain).all()
