"""The real redis-server, that our answers are compared with byte for byte.

`with reference() as redis:` starts one on a free port of the loopback interface with its data in a
fresh folder. Without the program nothing here can be tested, so that is a failure with the words
that help, never a skip.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

VERSION = "7.0.15"
START_S = 20
ANSWER_S = 20


class Reference:
    """A running redis-server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S)

    def ask(self, request: bytes, *, until: bytes | None = None) -> bytes:
        """What a new connection answers until it is closed, or the answer ends with `until`."""
        with self.connect() as connection:
            connection.sendall(request)
            answer = b""
            while until is None or not answer.endswith(until):
                try:
                    received = connection.recv(1 << 16)
                except ConnectionResetError:  # It left bytes unread, its answer came before.
                    break
                if not received:
                    break
                answer += received
            return answer


@contextlib.contextmanager
def reference(*options: str) -> Iterator[Reference]:
    """A redis-server of its own, with further options like `--requirepass x`; ended at the end."""
    program = shutil.which("redis-server")
    assert program, (
        "these tests compare with the real redis-server, which is not installed: "
        "apt-get install redis-server (they never use one that is running)"
    )
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"v={VERSION} " in told, f"the reference is redis-server {VERSION}, this is: {told}"
    with tempfile.TemporaryDirectory(prefix="reference-") as folder:
        port = _free_port()
        with subprocess.Popen(
            [
                *(program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder),
                *("--save", "", "--appendonly", "no", "--logfile", f"{folder}/log", *options),
            ],
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                _await_start(port, process)
                yield Reference(port)
            finally:
                process.terminate()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _await_start(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, "redis-server ended at its start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)
        else:
            return
