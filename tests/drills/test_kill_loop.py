"""A broker killed with SIGKILL again and again under load loses nothing and is never early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.drill_program import page_of


def test_fifty_kills(tmp_path: Path) -> None:
    page_of(tmp_path, "kill_loop", "--rounds", 50, "--seed", 20130101, "--warm", timeout_s=900)


@pytest.mark.drill
def test_five_hundred_kills(tmp_path: Path) -> None:
    page_of(tmp_path, "kill_loop", "--rounds", 500, "--seed", 20131231, timeout_s=3_000)
