"""Texts of a query parameter come back as they were; hand-written ones are read as documented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.contract.members import QueryTexts, join_texts, split_texts


@given(st.lists(st.text(st.sampled_from("a,\\\n\u00e9")), min_size=1))
def test_texts_round_trip(texts: list[str]) -> None:
    assert split_texts(join_texts(texts)) == texts


@pytest.mark.parametrize(
    ("joined", "texts"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (",", ["", ""]),
        (r"a\,b", ["a,b"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"a\b", ["ab"]),
        ("a\\", ["a\\"]),
    ],
)
def test_parameters(joined: str, texts: list[str]) -> None:
    assert split_texts(joined) == texts
    assert QueryTexts("tags", "Tags.", 9).check(joined) == texts
