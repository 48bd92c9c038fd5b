"""Ranges of a batch hold exactly its rows, whatever the form of each column."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.messages.batch import (
    BatchRanges,
    MessageBatch,
    decode_send,
    encode_send,
    expand,
)

TEXTS = {"body": "bodies", "id": "id", "key": "key", "tags": "tags", "headers": "headers"}
NUMBERS = {"ttl_ms": np.int64, "priority": np.int32, "max_retry": np.uint16}


@st.composite
def batches(draw: st.DrawFn) -> MessageBatch:
    n = draw(st.integers(1, 30))
    columns: dict[str, Any] = {"n": n}
    when = draw(st.sampled_from(["delay_ms", "deliver_at_ms"]))
    for name, dtype in {when: np.int64, **NUMBERS}.items():
        form = draw(st.sampled_from(["scalar", "column", "absent"]))
        if form == "column":
            columns[name] = np.array(draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)))
            columns[name] = columns[name].astype(dtype)
        elif form == "scalar" or name == when:
            columns[name] = draw(st.integers(0, 99))
    for name, block in TEXTS.items():
        if draw(st.booleans()):
            size = draw(st.integers(0, 5))
            columns[f"{name}_size"], columns[block] = size, bytes(range(97, 97 + n))[:1] * n * size
        else:
            values = draw(st.lists(st.binary(max_size=5), min_size=n, max_size=n))
            columns[f"{name}_size"] = np.array([len(value) for value in values])
            columns[block] = b"".join(values)
    return decode_send(encode_send(columns), rows_max=100)


@given(batches(), st.data())
def test_ranges(batch: MessageBatch, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, batch.n - 1))
    stop = data.draw(st.integers(first + 1, batch.n))
    part = BatchRanges(batch).take(first, stop)
    assert (part.n, part.merge) == (stop - first, batch.merge)
    for name in ("delay_ms", "deliver_at_ms", *NUMBERS):
        whole, mine = getattr(batch, name), getattr(part, name)
        assert (whole is None) == (mine is None)
        if whole is not None:
            assert expand(mine, part.n).tolist() == expand(whole, batch.n)[first:stop].tolist()
    for name in TEXTS:
        whole, mine = getattr(batch, name), getattr(part, name)
        assert mine.values(part.n) == whole.values(batch.n)[first:stop]
