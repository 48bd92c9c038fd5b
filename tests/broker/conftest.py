"""A real broker process over real sockets, for every test that speaks HTTP.

One process per test module; each test takes a fresh topic. When a module is done the broker is
ended by SIGTERM, must leave with status 0, and must have logged JSON lines only, none of them an
error: bad input is never worth a traceback.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import msgpack
import pytest

from delaylog.broker.calls.access.first_admin import leave_digest
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.client.child_broker import free_port
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.answer import Answer
from tests.coroutines import pytest_pyfunc_call  # noqa: F401
from tests.starts.tuned import tuning
from tests.starts.warm import WarmProcess
from tests.waiting import await_that

BULK = "application/vnd.delaylog.batch"
MSGPACK = "application/msgpack"
TIMEOUT_S = 30


class Broker:
    """`delaylog serve` as a child process, and a plain client for it."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        limits: str = "",
        constants: Mapping[str, float] | None = None,
        program: Sequence[str] | None = None,
    ) -> None:
        """`constants` of the code: see `tests/starts/tuned.py`. `program` stands for the command;
        without it each start is a warm one."""
        self.program = program
        self._tuning = tuning(constants or {})
        self._starts = itertools.count()
        self.data_dir = folder / "data"
        self.log_path = folder / "log"
        self.port = 0
        self.ready_line = ""
        self._options = list(options)
        if limits:
            config = folder / "delaylog.toml"
            config.write_text(f"[limits]\n{limits}\n")
            self._options += ["--config", str(config)]
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._out: IO[str] | None = None
        self._pool = ThreadPoolExecutor(64)
        self.tls: ssl.SSLContext | None = None
        """Set by a test that starts it with `--tls-cert`: trusts that certificate."""

    def start(self) -> None:
        """Start it and wait for its ready line."""
        self._close_out()
        self.port = self.port or free_port()
        words = ["serve", "--data-dir", str(self.data_dir), "--http", f"127.0.0.1:{self.port}"]
        words += self._options
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DELAYLOG_")}
        environment |= self._tuning
        reading, writing = os.pipe()
        self._out = os.fdopen(reading)
        try:
            with self.log_path.open("ab") as log, Path(os.devnull).open() as nothing:
                if self.program is None:
                    self._process = WarmProcess(
                        *words,
                        stdin=nothing.fileno(),
                        stdout=writing,
                        stderr=log.fileno(),
                        environment=environment,
                        turn=next(self._starts),
                    )
                else:
                    self._process = subprocess.Popen(
                        [*self.program, *words],
                        stdin=nothing,
                        stdout=writing,
                        stderr=log,
                        env=environment,
                    )
        finally:
            os.close(writing)
        self.ready_line = self._out.readline()
        assert self.ready_line.startswith("ready http="), self.log_path.read_text()
        self.port = int(self.ready_line.split()[1].rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(TIMEOUT_S)

    def stop(self) -> int:
        """End it politely; returns its exit status."""
        self.terminate()
        return self.wait()

    def crash(self) -> None:
        """End it at once; its folder stays as it is, for another start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            self._close_out()

    def _close_out(self) -> None:
        if self._out is not None:
            self._out.close()

    def kill(self) -> None:
        """End it at once, if it is there, and for good."""
        self.crash()
        # Real space, and pytest keeps the folders of three runs.
        (self.data_dir / "reserve").unlink(missing_ok=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def memory_bytes(self, name: str) -> int:
        """Of its process as the kernel tells it: VmRSS now, VmHWM at its most."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition(f"{name}:")[2].split()[0]) << 10

    def logs(self) -> list[dict[str, Any]]:
        """All log lines; each must be a JSON object."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def end_well(self) -> None:
        """It leaves with status 0 and has logged no error."""
        assert self.stop() == 0
        self.assert_clean_logs()

    def assert_clean_logs(self) -> None:
        """No error was logged, so no traceback either."""
        for line in self.logs():
            assert line["level"] in ("debug", "info", "warning"), json.dumps(line)
            assert "exception" not in line, line

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own. Members become JSON, bytes go as they are."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = self._connection()
        try:
            with suppress(BrokenPipeError):
                # A broker that is full answers before it has read the body.
                connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT_S, context=self.tls
        )

    def later(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Future[Answer]:
        """The same in a thread of its own, for calls that wait."""
        return self._pool.submit(self.call, method, path, body, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """A POST that must succeed; returns the members of its answer."""
        answer = self.call("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        assert answer.status == 200, answer
        return answer.json

    def bulk(self, path: str, fields: Any, accept: str = BULK) -> Answer:
        """POST a bulk body: a map, or raw bytes."""
        wire = fields if isinstance(fields, bytes) else msgpack.packb(fields)
        return self.call("POST", path, wire, {"Content-Type": BULK, "Accept": accept})

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def raw(self, wire: bytes) -> bytes:
        """Send bytes, read until the broker closes (ask it to) or stays silent for a moment."""
        with self.connect() as sock:
            sock.sendall(wire)
            return read_all(sock)

    def counts(self, topic: str) -> dict[str, int] | None:
        """Counts of a topic, None when there is no such topic."""
        if self.call("GET", f"/v1/topics/{topic}").status == 404:
            return None
        answer = self.call("GET", f"/v1/topics/{topic}/stats")
        return answer.json["counts"] if answer.status == 200 else None

    def all_pages(self, path: str, *, packed: bool = False, **query: Any) -> list[Any]:
        """Messages of every page of a list: each may end before it is full."""
        headers = {"Accept": "application/msgpack"} if packed else {}
        found: list[Any] = []
        while True:
            answer = self.call("GET", f"{path}?{urlencode(query)}", headers=headers)
            assert answer.status == 200, answer
            page = answer.packed if packed else answer.json
            found += page["messages"]
            query["cursor"] = page["cursor"]
            if query["cursor"] is None:
                return found

    def await_waiting(self, consumers: int) -> None:
        """Return once so many long polls wait."""
        self.await_metric("delaylog_waiting_consumers", consumers)

    def audit_lines(self) -> list[dict[str, Any]]:
        """All lines of its audit log, in order."""
        files = sorted((self.data_dir / "audit").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def await_audit_lines(self, call: str, count: int) -> list[dict[str, Any]]:
        """The audit lines of a call, once there are this many; more fail the test."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.audit_lines() if line["call"] == call]

        await_that(lambda: len(found()) >= count, lambda: f"{call}: {found()}", seconds=TIMEOUT_S)
        assert len(found()) == count
        return found()

    def await_metric(self, name: str, value: int) -> None:
        """Return once a metric has this value."""
        wanted = f"{name} {float(value)}".encode()
        await_that(
            lambda: wanted in self.call("GET", "/metrics").body,
            lambda: f"{name} never became {value}",
            seconds=TIMEOUT_S,
        )


def read_all(sock: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    try:
        while part := sock.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Broker]]:
    """Makes brokers that are killed at the end of the module."""
    made: list[Broker] = []

    def start(
        *options: str,
        folder: Path | None = None,
        **how: Any,
    ) -> Broker:
        folder = folder or tmp_path_factory.mktemp("broker")
        broker = Broker(folder, *options, **how)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        broker.kill()


@pytest.fixture(scope="module")
def sound_broker(start_broker: Callable[..., Broker]) -> Iterator[Callable[..., Broker]]:
    """Makes brokers that end well at the end of the module."""
    made: list[Broker] = []

    def start(*options: str, **how: Any) -> Broker:
        made.append(start_broker(*options, **how))
        return made[-1]

    yield start
    for broker in made:
        broker.end_well()


@pytest.fixture(scope="module")
def broker(sound_broker: Callable[..., Broker]) -> Broker:
    """The module's broker."""
    return sound_broker()


class Secured:
    """A broker with an administrator; makes principals and calls as them."""

    def __init__(self, start: Callable[..., Broker], folder: Path, *options: str) -> None:
        """`start` starts a broker in a folder."""
        self.admin = make_token(os.urandom(RANDOM_BYTES))
        (folder / "data").mkdir(mode=0o700)
        leave_digest(OsFileSystem(), str(folder / "data"), self.admin)
        self.broker = start(*options, folder=folder)
        self._names = itertools.count(1)

    def token(self, *grants: str, **settings: Any) -> str:
        """The token of a new principal."""
        return self.principal(f"p{next(self._names)}", *grants, **settings)

    def principal(self, name: str, *grants: str, **settings: Any) -> str:
        """The token of a new principal with this name."""
        answer = self.call("PUT", f"/v1/principals/{name}", {"grants": grants, **settings})
        assert answer.status == 201, answer
        token: str = answer.json["token"]
        return token

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """A call with a token: that of the administrator by default, None = without one."""
        given = {} if token is None else {"Authorization": f"Bearer {token or self.admin}"}
        return self.broker.call(method, path, body, given | (headers or {}))

    def await_a_waiting_call(self) -> None:
        """Return once a long poll waits."""
        await_that(
            lambda: b"delaylog_waiting_consumers 1.0" in self.call("GET", "/metrics").body,
            lambda: "nobody waits",
        )


@pytest.fixture(scope="module")
def secured_broker(
    sound_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Secured]:
    """Makes brokers that require authentication."""

    def start(*options: str) -> Secured:
        return Secured(sound_broker, tmp_path_factory.mktemp("secured"), *options)

    return start


@pytest.fixture(scope="module")
def secured(secured_broker: Callable[..., Secured]) -> Secured:
    """The module's broker that requires authentication."""
    return secured_broker()


_numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic that nobody else uses."""
    return f"t{next(_numbers)}"


@pytest.fixture(scope="session")
def assert_problem() -> Callable[..., dict[str, Any]]:
    """Checks that an answer is the documented problem document; returns it."""

    def check(
        answer: Answer,
        status: int,
        code: str,
        field: str | None = None,
        item: int | None = None,
    ) -> dict[str, Any]:
        assert answer.status == status, answer
        assert answer.headers["Content-Type"] == "application/problem+json"
        problem = answer.json
        assert {"type", "title", "status", "code", "detail"} <= problem.keys()
        assert problem["status"] == status
        assert problem["code"] == code, problem
        assert problem["type"] == f"urn:delaylog:problem:{code}"
        assert problem["title"]
        assert problem["detail"]
        if field is not None:
            assert problem.get("field") == field, problem
        if item is not None:
            assert problem.get("item") == item, problem
        return problem

    return check
