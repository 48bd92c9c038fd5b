"""Workers of job systems on a Redis server; see `tests/job_bench.py`."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from tests.job_bench import JobBench
from tests.redis.servers import TIMEOUT_S, RedisServer
from tests.waiting import await_that

JOBS = Path(__file__).parent / "jobs"
OTHER_LANGUAGES = Path(__file__).parent / "other_languages"
T = TypeVar("T")


def wait_for(probe: Callable[[], T], what: str = "it") -> T:
    """The first true answer of the probe; fails when none comes."""
    return await_that(probe, lambda: f"{what} never came", seconds=TIMEOUT_S)


def now_ms() -> int:
    """The time as the jobs note it."""
    return time.time_ns() // 1_000_000


class Bench(JobBench):
    """The folder of one test, and its server."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        super().__init__(folder, JOBS, self._where, timeout_s=TIMEOUT_S)
        self.server = server

    def _where(self) -> dict[str, str]:
        return {"SERVER_URL": self.server.url, "SENTINELS": self.server.sentinels}

    def jobs(self, name: str) -> ModuleType:
        """A module of jobs/, imported anew for this server, to send from."""
        for each in ("where", name):
            sys.modules.pop(each, None)
        return importlib.import_module(name)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end, which must be with status 0; returns what it wrote."""
        done = subprocess.run(
            self.command(program, *arguments),
            cwd=self.folder,
            env=self.child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout
