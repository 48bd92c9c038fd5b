"""Programs that a test runs to their end, and children that it forks."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any


def run_program(
    *words: object, timeout: float = 60, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its status and what it wrote, as text."""
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=check, **how
    )


def forked(act: Callable[[], Any]) -> int:
    """The id of a forked child that does this."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(status)
    return child


def status_of(child: int) -> int:
    """The exit status of a child, which is 0 if it raised nothing."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
