"""Workers as their users run them: the program of the job system, as a process of its own."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tests.redis.servers import TIMEOUT_S, RedisServer
from tests.waiting import await_that

JOBS = Path(__file__).parent / "jobs"
OTHER_LANGUAGES = Path(__file__).parent / "other_languages"
T = TypeVar("T")


def wait_for(probe: Callable[[], T], what: str = "it") -> T:
    """The first true answer of the probe; fails when none comes."""
    return await_that(probe, lambda: f"{what} never came", seconds=TIMEOUT_S)


def now_ms() -> int:
    """As the jobs write it down."""
    return time.time_ns() // 1_000_000


class Bench:
    """Where one test works: a server, a folder, and the file in which jobs say that they ran."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.ran_file = folder / "ran"

    def ran(self) -> list[tuple[str, int]]:
        """What ran, in order, and when, in milliseconds."""
        if not self.ran_file.exists():
            return []
        words = [line.split() for line in self.ran_file.read_text().splitlines()]
        return [(word, int(at_ms)) for word, at_ms in words]

    def names(self) -> list[str]:
        """What ran, in order."""
        return [word for word, _ in self.ran()]

    def at_ms(self, word: str) -> int:
        """When it ran first, once it did."""
        wait_for(lambda: word in self.names(), f"the run of {word}")
        return next(at_ms for name, at_ms in self.ran() if name == word)

    def environment(self) -> dict[str, str]:
        """What the modules of jobs/ read when they are imported."""
        return {
            "SERVER_URL": self.server.url,
            "SENTINELS": self.server.sentinels,
            "RAN_FILE": str(self.ran_file),
        }

    def jobs(self, name: str) -> ModuleType:
        """A module of jobs/, imported anew for this server, to send from."""
        for each in ("where", name):
            sys.modules.pop(each, None)
        return importlib.import_module(name)

    def command(self, program: str, *arguments: str) -> list[str]:
        """A program of this environment, or else of the machine."""
        beside = Path(sys.executable).parent / program
        return [str(beside) if beside.exists() else program, *arguments]

    def run(self, program: str, *arguments: str) -> str:
        """Run one to its end, which must be with status 0; returns what it said."""
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

    @contextmanager
    def worker(
        self, program: str, *arguments: str, end_by: signal.Signals = signal.SIGTERM
    ) -> Iterator[Any]:
        """A worker in the background. Asked to end, it must, unless the test has killed it and
        waited for it. When the test fails, its log shows.
        """
        log_path = self.folder / f"{Path(program).name}.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                self.command(program, *arguments),
                cwd=self.folder,
                env=self.child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
            if process.returncode is None:
                assert process.poll() is None, "the worker has left"
                process.send_signal(end_by)
                process.wait(TIMEOUT_S)
        except BaseException:
            print(log_path.read_text(errors="replace")[-10_000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def child_environment(self) -> dict[str, str]:
        """What programs of this test get."""
        return {
            **os.environ,
            **self.environment(),
            "PYTHONPATH": str(JOBS),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
