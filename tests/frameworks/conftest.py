"""For tests of web frameworks: the programs of examples/, served as by their users.

They need the frameworks, so `make test-frameworks` runs them in an environment that has these.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from delaylog.client import Client
from delaylog.client.child_broker import free_port
from tests.broker.conftest import Broker
from tests.waiting import await_that

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent
TIMEOUT_S: Final = 60


class Site:
    """A copy of one folder of examples/, and the programs that run there."""

    def __init__(self, folder: Path, example: str, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker
        self.port = free_port()
        self._running: list[subprocess.Popen[bytes]] = []
        shutil.copytree(
            ROOT / "examples" / example,
            folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a program of this environment; `PORT` is the port of the site."""
        program, *options = (word.replace("PORT", str(self.port)) for word in words)
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen(
            [str(PROGRAMS / program), *options],
            cwd=self.folder,
            env={
                **os.environ,
                "DELAYLOG_URL": self.broker.url,
                "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
                "PYTHONPATH": str(self.folder),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._running.append(process)
        return process

    def log(self) -> str:
        """What its programs have written."""
        return (self.folder / "log").read_text()

    def ask(self, method: str, path: str, **fields: object) -> tuple[int, str]:
        """One request, with a form; repeated until the server listens. Returns status and body."""
        body = urlencode(fields).encode() if fields else None
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.call(urllib.request.Request(url, body, method=method))

    def call(self, request: urllib.request.Request) -> tuple[int, str]:
        """One request; repeated until the server listens. Returns status and body."""

        def answered() -> tuple[int, str] | None:
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except urllib.error.URLError:
                return None

        answer = await_that(answered, self.log, seconds=TIMEOUT_S)
        assert answer is not None
        return answer

    def wait_for(self, text: str) -> None:
        """Until a program has written it."""
        await_that(lambda: text in self.log(), self.log, seconds=TIMEOUT_S)

    def stop(self, *, tracebacks: int = 0) -> list[int]:
        """End the programs as a service manager does. Returns their exit statuses.

        `tracebacks`: how many they have written.
        """
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        statuses = [process.wait(TIMEOUT_S) for process in self._running]
        self._running.clear()
        assert self.log().count("Traceback") == tracebacks, self.log()
        return statuses

    def kill(self) -> None:
        """Whatever is left."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """It has logged no error when the test is done."""
    broker = Broker(tmp_path / "broker", program=[str(PROGRAMS / "delaylog")])
    broker.data_dir.parent.mkdir()
    broker.start()
    try:
        yield broker
        broker.end_well()
    finally:
        broker.kill()


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """A look at what the programs leave in the broker."""
    with Client(broker.url, producer=uuid4().hex) as client:
        yield client


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, broker: Broker) -> Iterator[Site]:
    """The folder that the test names by `@pytest.mark.parametrize("site", …, indirect=True)`."""
    site = Site(tmp_path, request.param, broker)
    try:
        yield site
    finally:
        site.kill()
