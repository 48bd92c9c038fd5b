"""A broker on a small tmpfs without a byte left delivers, settles, restarts, and takes sends again.

The drill runs as the program that people run by hand, inside mounts of its own; its page, with seed
and folder, is what a failure shows. Where nothing can be mounted it fails and says what to do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import run_program

PROGRAM = Path(__file__).with_name("full_disk.py")


def run(seed: int, *options: str) -> None:
    command = [sys.executable, str(PROGRAM), "--seed", str(seed), *options]
    done = run_program(*command, timeout=150)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_disk_without_a_byte_left() -> None:
    run(20130101)


@pytest.mark.drill
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size_mib", [32, 64, 160])
def test_disks_of_many_sizes(seed: int, size_mib: int) -> None:
    run(seed, "--size-mib", str(size_mib))
