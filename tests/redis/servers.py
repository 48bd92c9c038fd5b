"""Redis servers as child processes: the reference and our broker, by one handle.

A test asks for `endpoint` (see conftest.py) and runs once against each kind in `ENDPOINTS`; what it
asserts of redis-server must hold of us word for word. Both stand on a free loopback port and keep
their data in the folder they are given, so that a test may kill one and start it again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

from delaylog.broker.calls.access.first_admin import leave_digest
from delaylog.client.child_broker import free_port
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.redis_reference import reference_programs

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv" / "bin" / "delaylog"
TIMEOUT_S = 60
"""How long a test waits for what must come, on a machine that does much else besides. Longer than
the half minute after which some clients look again by themselves."""

REFERENCE = "reference"
DELAYLOG = "delaylog"
# Who is tested; `pytest --endpoint delaylog` asks for one alone.
ENDPOINTS = (REFERENCE, DELAYLOG)


class RedisServer:
    """One server, started, asked, killed and started again on the same port with the same data.

    `fsync` says when a write is durable: "always" before its answer, "everysec" about a second
    later, as in Redis; None leaves the reference without its append-only file, and our broker with
    its default.
    """

    host = "127.0.0.1"
    sentinels = ""
    """Addresses of sentinels that name the server's address; none."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        fsync: str | None = None,
        password: str | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        assert kind in (REFERENCE, DELAYLOG)
        self.kind = kind
        self.folder = folder
        self.password = password
        self.port = 0
        self.log_path = folder / "log"
        self.data_dir = folder / "data"
        self.programs = reference_programs()
        self._fsync = fsync
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """As clients take it."""
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{self.host}:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return once it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self.kind == DELAYLOG:
            self._start_delaylog()
        else:
            self._start_reference()

    def terminate(self) -> int:
        """End it politely; returns its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> None:
        """End it at once, if it is there."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def remove(self) -> None:
        """Kill it and give back its disk space."""
        self.kill()
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def client(self, **options: Any) -> redis.Redis:
        """redis-py as it comes, unless told otherwise."""
        return redis.Redis(host=self.host, port=self.port, **{"password": self.password, **options})

    def cli(
        self, *arguments: str, feed: str | bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> str:
        """What redis-cli prints; it must leave with status 0."""
        feed_bytes = feed.encode() if isinstance(feed, str) else feed
        done = subprocess.run(
            [self.programs / "redis-cli", "-h", self.host, "-p", str(self.port), *arguments],
            input=feed_bytes,
            stdin=subprocess.DEVNULL if feed_bytes is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.cli_environment(),
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")
        return done.stdout.decode()

    def cli_environment(self) -> dict[str, str]:
        """For redis-cli: the password, and no history file."""
        environment = {**os.environ, "REDISCLI_HISTFILE": "/dev/null"}
        if self.password:
            environment["REDISCLI_AUTH"] = self.password
        return environment

    def assert_clean_log(self) -> None:
        """Whatever clients asked, it was not worth an error or a traceback."""
        text = self.log_path.read_text(errors="replace")
        if self.kind == REFERENCE:
            assert "BUG REPORT" not in text, text[-10_000:]
            return
        for line in map(json.loads, text.splitlines()):
            assert line["level"] in ("debug", "info", "warning"), line
            assert "exception" not in line, line

    def _ended(self) -> int:
        assert self._process is not None
        status = self._process.wait(TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return status

    def _start_delaylog(self) -> None:
        self.port = self.port or free_port()
        options = [*self._options]
        if self._fsync is not None:
            options += ["--resp-fsync", self._fsync]
        if self.password is not None:
            # The password of an administrator, whom AUTH finds without a name.
            leave_digest(OsFileSystem(), str(self.data_dir), self.password)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM,
                    "serve",
                    "--data-dir",
                    self.data_dir,
                    "--http",
                    "127.0.0.1:0",
                    "--resp",
                    f"127.0.0.1:{self.port}",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_broker_environment(),
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().split()
        addresses = dict(word.split("=", 1) for word in ready if "=" in word)
        assert ready[:1] == ["ready"], self.log_path.read_text()
        assert "resp" in addresses, f"it says no RESP address: {ready}"
        self.port = int(addresses["resp"].rpartition(":")[2])

    def _start_reference(self) -> None:
        """On a free port; twice the same unlucky pick is taken for a broken machine."""
        tries = 5
        for attempt in range(tries):
            port = self.port or free_port()
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [self.programs / "redis-server", *self._reference_options(port)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    text=True,
                )
            if self._answers(port):
                self.port = port
                return
            assert attempt + 1 < tries, self.log_path.read_text()[-4000:]

    def _reference_options(self, port: int) -> list[str]:
        options = ["--port", str(port), "--bind", self.host, "--dir", str(self.data_dir)]
        options += ["--save", "", "--daemonize", "no", "--enable-debug-command", "local"]
        if self._fsync is not None:
            options += ["--appendonly", "yes", "--appendfsync", self._fsync]
        if self.password is not None:
            options += ["--requirepass", self.password]
        return [*options, *self._options]

    def _answers(self, port: int) -> bool:
        """Whether our own process came to serve this port; false once it has left."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                return False
            try:
                with redis.Redis(
                    host=self.host, port=port, password=self.password, retry=None
                ) as probe:
                    # While it loads its data it answers INFO, and refuses PING.
                    if probe.info("server")["process_id"] == self._process.pid and probe.ping():
                        return True
            except redis.RedisError:
                pass
            time.sleep(0.02)
        self.kill()
        return False


def _broker_environment() -> dict[str, str]:
    """Ours without its settings. Dozens are started: what one has compiled, the next one reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DELAYLOG_") and name != "PYTHONDONTWRITEBYTECODE"
    }
