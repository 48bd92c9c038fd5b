"""Programs that a test runs to their end."""

from __future__ import annotations

import subprocess
from typing import Any


def run_program(
    *words: object, timeout: float = 60, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its status and what it wrote, as text."""
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=check, **how
    )
