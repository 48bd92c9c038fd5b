"""The real redis-server, that our answers are compared with byte for byte.

`with reference() as redis:` starts one on a free port of the loopback interface with its data in a
fresh folder. Without the program nothing here can be tested: it is fetched, and where it cannot be
that is a failure with the words that help, never a skip. SORT ... ALPHA follows the locale of the
server's process, so that is pinned.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from delaylog.client.child_broker import free_port

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
    def session(self) -> Iterator[Callable[..., bytes]]:
        """A function that sends the words of a command on one connection, and returns the bytes of
        the reply, also if they are malformed: the reply to a PING marks their end.
        """
        fence = b"$5\r\nfence\r\n"
        with self.connect() as connection:

            def command(*words: str) -> bytes:
                for argv in (words, ("PING", "fence")):
                    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in map(str.encode, argv)]
                    connection.sendall(b"*%d\r\n%b" % (len(argv), b"".join(parts)))
                reply = b""
                while not reply.endswith(fence):
                    received = connection.recv(1 << 20)
                    assert received, f"the server closed the connection after {words}"
                    reply += received
                return reply.removesuffix(fence)

            yield command


def reference_programs() -> Path:
    """The folder with redis-server, redis-cli and redis-benchmark; fetched where there is none."""
    found = subprocess.run(
        [Path(__file__).with_name("redis") / "get_reference.sh"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return Path(found.stdout.strip())


@contextlib.contextmanager
def reference(*options: str) -> Iterator[Reference]:
    """A redis-server of its own, with further options like `--requirepass x`; ended at the end."""
    program = str(reference_programs() / "redis-server")
    with tempfile.TemporaryDirectory(prefix="reference-") as folder:
        port = free_port()
        with subprocess.Popen(
            [
                *(program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder),
                *("--save", "", "--appendonly", "no", "--logfile", f"{folder}/log", *options),
            ],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        ) as process:
            try:
                _await_start(port, process)
                yield Reference(port)
            finally:
                process.terminate()


def _await_start(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, "redis-server ended at its start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except (ConnectionRefusedError, TimeoutError):
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)
        else:
            return
