"""Cancels and reschedules that race with due times and receives are answered truly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import run_program

PROGRAM = Path(__file__).with_name("control_race.py")


def run(controls: int, seed: int, timeout_s: float) -> None:
    command = [sys.executable, str(PROGRAM), "--controls", str(controls), "--seed", str(seed)]
    done = run_program(*command, timeout=timeout_s)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_fifty_thousand_controls() -> None:
    run(50_000, seed=20150615, timeout_s=300)


@pytest.mark.drill
def test_a_million_controls() -> None:
    run(1_000_000, seed=20150616, timeout_s=1_800)
