"""A real redis-server for the time of a test: free port, own folder, nothing kept on disk.

Sorting by ALPHA follows the locale of the server's process, so it is pinned to C; all else is the
default of the package. Whoever has no redis-server gets None from `installed()` and decides.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time

START_S = 10.0
"""A loaded machine needs a second; ten mean that it will not come."""


def installed() -> str | None:
    """The path of redis-server, or None."""
    return shutil.which("redis-server")


class Reference:
    """One process; `port` is where it listens on loopback."""

    def __init__(self, *options: str) -> None:
        program = installed()
        if program is None:
            raise FileNotFoundError("redis-server is not installed")
        self._folder = tempfile.mkdtemp(prefix="reference-")
        self.port = _free_port()
        self._process = subprocess.Popen(
            [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder),
                *("--save", "", "--appendonly", "no", "--daemonize", "no", *options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    self.close()
                    raise
                time.sleep(0.02)
            else:
                return

    def close(self) -> None:
        """End the process and remove its folder."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
