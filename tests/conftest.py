"""For all tests: the order of files, the record of durations, and what `make check` forbids.

How long an example of Hypothesis takes says something of the machine only. Bytecode is kept, in
this process and in those that tests start, also where the environment says otherwise: without it
each of some thousand brokers and commands compiles every module of ours before it begins, which
doubles the time until it is there.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict

import pytest
from hypothesis import settings

from tests.longest_first import record, seconds_of

settings.register_profile("delaylog", deadline=None)
settings.load_profile("delaylog")

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_RECORDS = "DELAYLOG_RECORD_DURATIONS" in os.environ and not _WORKER
_seconds: defaultdict[str, float] = defaultdict(float)


def _forbid(event: str, _: object) -> None:
    if event in ("subprocess.Popen", "os.posix_spawn", "socket.bind"):
        raise RuntimeError(f"{event} in `make check`, whose tests start no process and no server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first; a file's tests stay together, and all else where it was."""
    items.sort(key=lambda item: -seconds_of(item.nodeid))
    if "DELAYLOG_PURE" in os.environ and _WORKER:
        # Not before: a worker that starts asks its platform by a process.
        sys.addaudithook(_forbid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what each file takes."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish() -> None:
    """Keep the durations if they were asked for."""
    if _RECORDS:
        record(_seconds)
