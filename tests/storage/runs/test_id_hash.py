"""Hashes of ids: the column and the single id agree, known bytes stay, keys matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage.messages.batch import TextColumn
from delaylog.storage.runs.id_hash import IdHash

KEY = bytes(range(16))


def column(values: list[bytes]) -> TextColumn:
    sizes = np.array([len(value) for value in values], np.uint16)
    return TextColumn(sizes, b"".join(values))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=60))
def test_a_column_is_what_its_ids_are_one_by_one(values: list[bytes]) -> None:
    hashes = IdHash(KEY)
    got = hashes.column(column(values), len(values)).tolist()
    assert got == [hashes.one(value) if value else 0 for value in values]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 24, 36, 255, 256])
def test_ids_of_one_size(size: int) -> None:
    values = [b"%0*d" % (size, k % 10**size) for k in range(100)]
    raw = TextColumn(size, b"".join(values))
    hashes = IdHash(KEY)
    assert hashes.column(raw, 100).tolist() == [hashes.one(value) for value in values]


def test_known_hashes() -> None:
    """Part of the log's format."""
    hashes = IdHash(KEY)
    assert [hex(hashes.one(value)) for value in (b"a", b"order-1", b"x" * 256, b"y" * 257)] == KNOWN


def test_padding_and_keys_tell_ids_apart() -> None:
    """Zeros at the end count, and another key gives another hash."""
    hashes = IdHash(KEY)
    zeros = [b"a" + b"\0" * k for k in range(12)]
    assert len({hashes.one(value) for value in zeros}) == 12
    assert hashes.one(b"a") != IdHash(b"k" * 16).one(b"a")


def test_ids_that_count_up_do_not_collide() -> None:
    values = [b"order-%d" % k for k in range(100_000)]
    hashes = IdHash(KEY).column(column(values), len(values))
    assert len(np.unique(hashes)) == len(values)
    assert len(np.unique(hashes & np.uint64(0xFFFF))) > 50_000, "the low bits are spread"


KNOWN = ["0xebd4322f8e06a13c", "0xa34f41c9b92be89f", "0xc209678e47dbc177", "0x9a27591b1745fa0f"]
