"""For tests of job systems on the delay log: a broker a file, and workers as their users run them.

These tests need the packages of the job systems, so `make test-redis` runs them in its environment.
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
from uuid import uuid4

import pytest

from delaylog.client import Client
from tests.broker.conftest import Broker
from tests.waiting import await_that

ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = ROOT / ".venv" / "bin" / "delaylog"
APPS: Final = Path(__file__).parent / "apps"
TIMEOUT_S: Final = 180
"""A worker takes seconds of a processor to start."""


def pytest_configure(config: pytest.Config) -> None:
    """What others call, and leave to the garbage collector, is their affair."""
    for kind in ("DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It has logged no error when the file is done."""
    broker = Broker(tmp_path_factory.mktemp("broker"), program=[str(PROGRAM)])
    broker.start()
    try:
        yield broker
        broker.end_well()
    finally:
        broker.kill()


@pytest.fixture
def namespace() -> str:
    """One that no other test uses."""
    return f"n-{uuid4().hex}"


def url_of(broker: Broker, namespace: str) -> str:
    """The broker URL of an application."""
    return f"delaylog://127.0.0.1:{broker.port}/{namespace}"


@pytest.fixture
def url(broker: Broker, namespace: str) -> str:
    """The broker URL of an application, in a namespace of its own."""
    return url_of(broker, namespace)


@pytest.fixture
def client(broker: Broker, namespace: str) -> Iterator[Client]:
    """The SDK's view of what the job system has stored."""
    with Client(broker.url, namespace=namespace) as client:
        yield client


class Bench:
    """A folder, the file in which tasks note that they ran, and workers."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**environment, "RAN_FILE": str(folder / "ran")}

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
            lambda: f"{self.names()}\n{self.log()[-8000:]}",
            seconds=TIMEOUT_S,
        )

    def at_ms(self, word: str) -> int:
        """When it ran first, once it did."""
        await_that(
            lambda: word in self.names(),
            lambda: f"{word} never ran\n{self.log()[-8000:]}",
            seconds=TIMEOUT_S,
        )
        return next(at_ms for name, at_ms in self.ran() if name == word)

    def log(self) -> str:
        """What the workers wrote."""
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    @contextmanager
    def worker(self, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker, which must end when it is asked to, unless the test has killed it."""
        environment = {**os.environ, "PYTHONPATH": str(APPS), **self.environment}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(Path(sys.executable).parent / program), *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(TIMEOUT_S)
        except BaseException:
            print(self.log()[-10_000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def load_app(module: str, url: str, folder: Path, patches: pytest.MonkeyPatch) -> tuple[Any, Bench]:
    """A module of apps/, imported anew for this broker, and its bench."""
    bench = Bench(folder, {"BROKER_URL": url})
    for name, value in bench.environment.items():
        patches.setenv(name, value)
    patches.syspath_prepend(APPS)
    patches.delitem(sys.modules, module, raising=False)
    return __import__(module), bench


@pytest.fixture
def make_app(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Any, Bench]]:
    """`load_app` for this test."""
    return lambda module: load_app(module, url, tmp_path, monkeypatch)
