"""A broker killed with SIGKILL again and again under load loses nothing and is never early.

The loop runs as the program that people run by hand, so that its processes and event loop are its
own; its page, with seed and folder, is what a failure shows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import run_program

PROGRAM = Path(__file__).with_name("kill_loop.py")


def run(rounds: int, seed: int, timeout_s: float, *options: str) -> None:
    command = [sys.executable, str(PROGRAM), "--rounds", str(rounds), "--seed", str(seed), *options]
    done = run_program(*command, timeout=timeout_s)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_fifty_kills() -> None:
    run(50, 20130101, 300, "--warm")


@pytest.mark.drill
def test_five_hundred_kills() -> None:
    run(500, seed=20131231, timeout_s=3_000)
