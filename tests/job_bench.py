"""Workers of job systems as their users run them: the program of the system, in its own process.

Tasks write the words of `ran` into a file, so that a test sees what happened without asking the
broker under test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.waiting import await_that

TIMEOUT_S: Final = 180
"""A worker takes seconds of a processor to start."""
SHOWN: Final = 10_000
"""How many characters of the log a failure shows."""


class JobBench:
    """The folder of one test: the file in which tasks note that they ran, and logs of workers."""

    def __init__(
        self,
        folder: Path,
        modules: Path,
        environment: Callable[[], dict[str, str]],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`modules` is a folder with the modules of tasks, which read the environment."""
        self.folder = folder
        self._environment = environment
        self._modules = modules
        self._timeout_s = timeout_s

    @property
    def environment(self) -> dict[str, str]:
        """What the modules of tasks read when they are imported."""
        return {**self._environment(), "RAN_FILE": str(self.folder / "ran")}

    # What ran

    def ran(self) -> list[tuple[str, int]]:
        """What ran, in order, and when, in milliseconds."""
        file = self.folder / "ran"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(word, int(at_ms)) for word, at_ms in map(str.split, lines)]

    def names(self) -> list[str]:
        """What ran, in order."""
        return [word for word, _ in self.ran()]

    def wait(self, *words: str) -> None:
        """Return once these ran, in any order, and nothing else did."""
        await_that(
            lambda: sorted(self.names()) == sorted(words),
            lambda: f"{self.names()}\n{self.log()[-SHOWN:]}",
            seconds=self._timeout_s,
        )

    def at_ms(self, word: str) -> int:
        """When it ran first, once it did."""
        await_that(
            lambda: word in self.names(),
            lambda: f"{word} never ran\n{self.log()[-SHOWN:]}",
            seconds=self._timeout_s,
        )
        return next(at_ms for name, at_ms in self.ran() if name == word)

    def log(self) -> str:
        """What the workers wrote."""
        file = self.folder / "workers.log"
        return file.read_text(errors="replace") if file.exists() else ""

    # Programs

    def command(self, program: str, *arguments: str) -> list[str]:
        """A program of this environment, or else of the machine."""
        beside = Path(sys.executable).parent / program
        return [str(beside) if beside.exists() else program, *arguments]

    def child_environment(self) -> dict[str, str]:
        """What programs of this test get."""
        return {
            **os.environ,
            **self.environment,
            "PYTHONPATH": str(self._modules),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def worker(
        self, program: str, *arguments: str, end_by: signal.Signals = signal.SIGTERM
    ) -> Iterator[Any]:
        """A worker in the background. It must end when it is asked to, and not before, unless the
        test has killed it or waited for its end. When the test fails, the log is printed.
        """
        with (self.folder / "workers.log").open("ab") as log:
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
            if process.returncode is None and process.poll() != -signal.SIGKILL:
                assert process.returncode is None, "the worker has left"
                process.send_signal(end_by)
                process.wait(self._timeout_s)
        except BaseException:
            print(self.log()[-SHOWN:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
