"""Records of a batch: columns of one size come to the same bytes as columns of many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.layout import INDEX_ENTRY
from delaylog.storage.messages.batch import MessageBatch, TextColumn
from delaylog.storage.messages.rows import bodies_only, interleave

WIDTHS = st.tuples(*[st.integers(0, 4)] * 5).filter(lambda widths: any(widths[:4]))


def batch(n: int, widths: tuple[int, ...], *, scalars: bool) -> MessageBatch:
    columns = [
        TextColumn(
            width if scalars else np.full(n, width),
            bytes((32 * number + k) % 256 for k in range(n * width)),
        )
        for number, width in enumerate(widths)
    ]
    names = ("id", "key", "tags", "headers", "body")
    return MessageBatch(n, **dict(zip(names, columns, strict=True)))


@given(st.integers(1, 6), WIDTHS)
def test_columns_of_one_size(n: int, widths: tuple[int, ...]) -> None:
    """Row by row: id, key, tags, headers, body."""
    data, size, starts = interleave(batch(n, widths, scalars=True))
    other, sizes, others = interleave(batch(n, widths, scalars=False))
    assert data == other
    assert (size, starts) == (sum(widths), None), "one after another"
    assert others is not None
    assert np.asarray(sizes).tolist() == [size] * n
    assert others.tolist() == list(range(0, n * size, size) if size else [0] * n)


@pytest.mark.parametrize("name", ["id_size", "key_size", "tags_size", "headers_size"])
def test_bodies_only(name: str) -> None:
    rows = np.zeros(3, INDEX_ENTRY)
    for other in INDEX_ENTRY.names or ():
        if not other.endswith("_size"):
            rows[other] = 2
    rows["size"] = 7
    assert bodies_only(rows)
    rows[name][1] = 1
    assert not bodies_only(rows)
    assert bodies_only(rows[2:])
