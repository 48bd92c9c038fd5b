"""The SDK loses nothing, sends nothing twice and hands out nothing early, whatever is killed.

The same drill with a client that is wrong on purpose shows that it can fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.drill_program import page_of

SEED = 20130101


@pytest.mark.parametrize("course", ["broker", "shards", "cluster"])
@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.drill)])
def test_kills_and_failovers(tmp_path: Path, course: str, rounds: int) -> None:
    page_of(tmp_path, "sdk_kills", course, "--rounds", rounds, "--seed", SEED, timeout_s=3_000)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        ("new-sequence", "there more than once"),
        ("told-done", "lost although it was acknowledged"),
        ("too-certain", "there although it was told not to be"),
    ],
)
def test_a_client_that_is_wrong_is_found(tmp_path: Path, plant: str, found: str) -> None:
    """Three kills may interrupt no call that has already taken effect: then there are more."""
    for seed in range(SEED, SEED + 5):
        options = ("broker", "--rounds", 3, "--seed", seed, "--plant", plant)
        page = page_of(tmp_path, "sdk_kills", *options, timeout_s=300, statuses=(0, 1))
        if found in page:
            return
    pytest.fail(page)
