"""Long files are handed out first, and the list of them names files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.longest_first import LONGEST, rank_of

ROOT = Path(__file__).parents[1]


def test_the_list_names_files_once_each() -> None:
    assert [path for path in LONGEST if not (ROOT / path).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_long_files_come_first_and_the_others_stay_where_they_were() -> None:
    first, second = LONGEST[:2]
    given = ["tests/z.py::b", "tests/a.py::a", f"{second}::k[::1]", f"{first}::z", f"{first}::a"]
    assert sorted(given, key=rank_of) == [
        f"{first}::z",
        f"{first}::a",
        f"{second}::k[::1]",
        "tests/z.py::b",
        "tests/a.py::a",
    ]


def test_this_run_is_in_that_order(request: pytest.FixtureRequest) -> None:
    ranks = [rank_of(item.nodeid) for item in request.session.items]
    assert ranks == sorted(ranks)
