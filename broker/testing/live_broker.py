"""A broker as a child process, for tests: on a free port, with a separate folder and log file.

Whatever a test did to the broker, `close` ends its process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from delaylog.client import Client
from delaylog.client.child_broker import BrokerStartError, delaylog_program, free_port

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 20.0
LOG_LINES: Final = 40


class LiveBroker:
    """`delaylog serve` on a folder; a test may stop it and start it again on the same port."""

    def __init__(
        self, folder: Path, *, options: Sequence[str] = (), limits: Mapping[str, int] | None = None
    ) -> None:
        """`options` are arguments of `delaylog serve`, `limits` its `[limits]`."""
        self.data_dir = folder / "data"
        self.log_path = folder / "broker.log"
        self.port = 0
        self._config = folder / "delaylog.toml"
        lines = [f"{name} = {value}" for name, value in (limits or {}).items()]
        self._config.write_text("\n".join(["[limits]", *lines, ""]), encoding="utf-8")
        self._options = tuple(options)
        self._process: subprocess.Popen[str] | None = None
        self._clients: list[Client] = []

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<LiveBroker {self.url} {state}>"

    @property
    def url(self) -> str:
        """The address at which the broker answers, or answered before it was stopped."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is running."""
        return self._process is not None and self._process.poll() is None

    def client(self, **options: Any) -> Client:
        """A new client of the broker, with the options of `Client`; `close` closes it too."""
        client = Client(self.url, **options)
        self._clients.append(client)
        return client

    # ------------------------------------------------------------------ the process

    def start(self) -> None:
        """Start the broker and wait until it serves.

        Raises BrokerStartError, with the end of the broker's log, if it does not start.
        """
        assert not self.running, "the broker runs already"
        self.port = self.port or free_port()
        with self.log_path.open("ab") as log:
            process = self._process = subprocess.Popen(
                [
                    *delaylog_program(),
                    "serve",
                    "--config",
                    str(self._config),
                    "--data-dir",
                    str(self.data_dir),
                    "--http",
                    f"127.0.0.1:{self.port}",
                    "--log-format",
                    "text",
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("DELAYLOG_")},
            )
        # A broker that hangs is killed, which ends the wait for its "ready" line.
        watch = threading.Timer(READY_SECONDS, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
        finally:
            watch.cancel()
        if not words or words[0] != "ready":
            self.kill()
            raise BrokerStartError(f"the broker did not start:\n{self.log_tail()}")
        places = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        self.port = int(places["http"].rpartition(":")[2])

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as in a crash. Does nothing if it is not running."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the broker with SIGTERM and return its exit status.

        Kills it and raises TimeoutExpired if it does not end in time.
        """
        try:
            return self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def restart(self) -> None:
        """Stop the broker, if it runs, and start it again on the same folder and port."""
        if self.running:
            self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        status = process.wait(STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        return status

    def close(self) -> None:
        """Close the broker's clients and kill it."""
        try:
            for client in self._clients:
                client.close()
        finally:
            self._clients.clear()
            self.kill()

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of the broker's log, over all its starts."""
        try:
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
