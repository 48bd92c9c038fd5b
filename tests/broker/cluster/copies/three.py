"""Three real nodes on loopback, and a plain client that finds the leader."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).parent / "delaylog")
NODES = (1, 2, 3)
WAIT_S = 40.0
SMALL = """
[limits]
checkpoint_bytes = 200_000
checkpoint_idle_bytes = 1
checkpoint_idle_ms = 200
segment_bytes_max = 100_000
reserve_file_bytes = 0
"""
SLOW = """
[limits]
checkpoint_idle_ms = 600_000
reserve_file_bytes = 0
"""
"""No checkpoint, so that a start replays all of the log."""


def free_port() -> int:
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port: int = tcp.getsockname()[1]
        return port


def until(condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """What it gives once it holds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


class Three:
    """A cluster in a folder."""

    def __init__(self, folder: Path, limits: str = SMALL) -> None:
        self.folder = folder
        self.http = {node: free_port() for node in NODES}
        secret = folder / "cluster.secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        text = 'cluster = "copies"\nsecret_file = "cluster.secret"\n'
        for node in NODES:
            text += f'[members.{node}]\npeer = "127.0.0.1:{free_port()}"\n'
            text += f'http = "127.0.0.1:{self.http[node]}"\n'
        (folder / "cluster.toml").write_text(text)
        (folder / "delaylog.toml").write_text(limits)
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def data(self, node: int) -> Path:
        return self.folder / f"n{node}"

    def log(self, node: int) -> str:
        return (self.folder / f"n{node}.log").read_text()

    def start(self, node: int, *options: str, wait: bool = True) -> None:
        with (self.folder / f"n{node}.log").open("ab") as out:
            self.processes[node] = process = subprocess.Popen(
                [
                    PROGRAM,
                    "serve",
                    "--data-dir",
                    str(self.data(node)),
                    "--http",
                    f"127.0.0.1:{self.http[node]}",
                    "--cluster",
                    str(self.folder / "cluster.toml"),
                    "--config",
                    str(self.folder / "delaylog.toml"),
                    "--node",
                    str(node),
                    "--log-format",
                    "text",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )
        if wait:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready"), self.log(node)

    def end(self, node: int, how: int = signal.SIGTERM) -> int:
        self.processes[node].send_signal(how)
        return self.ended(node)

    def ended(self, node: int) -> int:
        """The status it ends with by itself."""
        process = self.processes.pop(node)
        status = process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()
        return status

    def kill_all(self) -> None:
        for node in list(self.processes):
            self.end(node, signal.SIGKILL)

    def call(self, node: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, answer); 0 if nobody answers."""
        raw = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.http[node], timeout=10)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def leader(self) -> int:
        """Who leads, once somebody does."""

        def look() -> int:
            for node in self.processes:
                if self.call(node, "GET", "/v1/topics")[0] == 200:
                    return node
            return 0

        found: int = until(look)
        return found

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The leader's answer, whoever it is."""

        def ask() -> Any:
            status, answer = self.call(self.leader(), method, path, body)
            assert status in (0, 200, 201, 202, 307, 503), (status, answer)
            return (answer,) if status in (200, 201, 202) else None

        return until(ask)[0]

    def send(
        self, count: int, *, name: str = "m", delay_ms: int = 3_600_000, size: int = 2_000
    ) -> None:
        """Sends that can be told apart, some kilobytes each."""
        body = "x" * size
        for first in range(0, count, 20):
            messages = [
                {"id": f"{name}{number}", "body": body, "delay_ms": delay_ms}
                for number in range(first, min(first + 20, count))
            ]
            self.ask("POST", "/v1/topics/t/messages", messages)

    def first_position(self, node: int) -> int:
        """Where its log begins."""
        names = [path.stem for path in (self.data(node) / "log").glob("*.log")]
        return min(map(int, names), default=0)
