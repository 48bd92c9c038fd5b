"""Runs a drill as the program that people run by hand: its processes and event loop are its own.

The page, with seed and folder, is what a failure shows. The folder of a run that failed is in the
folder of the test.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.programs import run_program

FOLDER: Final = Path(__file__).parent


def page_of(
    folder: Path, program: str, *options: object, timeout_s: float, statuses: tuple[int, ...] = (0,)
) -> str:
    """The page of a run that ends with one of these statuses; 1 = it found something wrong."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    words = (sys.executable, FOLDER / f"{program}.py", *options)
    done = run_program(*words, timeout=timeout_s, env=environment)
    assert done.returncode in statuses, f"{done.stdout}\n{done.stderr}"
    return done.stdout
