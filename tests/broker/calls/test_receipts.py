"""Receipts as texts: many at once are read and made as each of them is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.shapes import parse_receipt, parse_receipts, receipt_texts
from delaylog.contract.members import INT64_MAX

LEASES, REFS = st.integers(0, 2**64 - 1), st.integers(0, INT64_MAX)


@given(LEASES, st.lists(REFS, max_size=9))
def test_receipts_of_a_delivery_round_trip(lease: int, refs: list[int]) -> None:
    texts = receipt_texts(lease, np.array(refs, np.int64))
    assert texts == [f"{lease:016x}{ref:016x}" for ref in refs]
    assert parse_receipts(texts) == [(lease, ref) for ref in refs]


@given(st.lists(st.tuples(LEASES, REFS), max_size=9))
def test_receipts_of_many_leases_are_read_in_order(named: list[tuple[int, int]]) -> None:
    texts = [f"{lease:016x}{ref:016x}" for lease, ref in named]
    assert parse_receipts(texts) == named == [parse_receipt(text, 0) for text in texts]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "0" * 31,
        "0" * 33,
        "0" * 31 + "G",
        "A" * 32,
        "~" * 32,
        " " * 16 + "0" * 16,
        "+" + "0" * 31,
        "-" + "0" * 14 + "1" + "0" * 16,
        "0_0" + "0" * 29,
        "0x" + "0" * 30,
        "0" * 31 + "٣",
        "f" * 32,
        7,
        None,
        ["0" * 32],
        "0" * 30 + "\t1",
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_wrong_one_among_many_is_named(wrong: Any, at: int) -> None:
    texts: list[Any] = ["0" * 32] * 2
    texts.insert(at, wrong)
    with pytest.raises(Problem) as caught:
        parse_receipts(texts)
    assert caught.value.item == at
    assert caught.value.field == "receipts"


def test_lengths_that_even_out_are_wrong_too() -> None:
    with pytest.raises(Problem):
        parse_receipts(["0" * 31, "0" * 33])
