"""strace, made sure of: the tests that let system calls of a real broker fail need it."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress

import pytest

from tests.programs import run_program


def strace() -> str:
    """Its path; installed if need be, and a clear failure where that cannot be."""
    if shutil.which("strace") is None:
        install = ["apt-get", "install", "-y", "strace"]
        with suppress(FileNotFoundError, subprocess.TimeoutExpired):
            subprocess.run(install, check=False, capture_output=True, timeout=120)
    path = shutil.which("strace")
    if path is None:
        pytest.fail("there is no strace here and apt-get could not bring it: install strace")
    tried = run_program(path, "-f", "-o", "/dev/null", "true", timeout=20)
    if tried.returncode:
        pytest.fail(
            f"strace may not trace here ({tried.stderr.strip()}): allow ptrace, as root or by "
            "docker run --cap-add SYS_PTRACE"
        )
    return path
