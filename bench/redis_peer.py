"""Redis as a peer: Debian's redis-server beside the broker, and its redis-benchmark as the load.

The one rule: both servers are asked by the same program with the same options, and the processor
time of each is read from the kernel around the run. Programs that are not installed are fetched
by tests/redis/get_reference.sh; without them there is nothing to measure.
"""

from __future__ import annotations

import csv
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import hiredis
from broker_process import READY_TIMEOUT_S, ServerError, ServerProcess
from load import LoadError
from sending import Timed

HOST: Final = "127.0.0.1"
FETCHING: Final = Path(__file__).parents[1] / "tests" / "redis" / "get_reference.sh"
FETCH_TIMEOUT_S: Final = 300.0
RUN_TIMEOUT_S: Final = 300.0
ANSWER_TIMEOUT_S: Final = 30.0


def reference_programs() -> Path:
    """The folder with redis-server and redis-benchmark 7.0.15."""
    found = subprocess.run(
        [FETCHING], stdout=subprocess.PIPE, text=True, check=True, timeout=FETCH_TIMEOUT_S
    )
    return Path(found.stdout.strip())


class RedisProcess(ServerProcess):
    """redis-server with its append-only file synced every second, or as `fsync` says.

    It writes no snapshots and does not rewrite the file: forks in the middle of a run would be
    counted against it.
    """

    def __init__(self, programs: Path, folder: Path, fsync: str = "everysec") -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self._chosen = int(free.getsockname()[1])
        super().__init__(
            [
                str(programs / "redis-server"),
                *("--bind", HOST, "--port", str(self._chosen)),
                *("--dir", str(folder), "--logfile", str(folder / "redis.log")),
                *("--appendonly", "yes", "--appendfsync", fsync),
                *("--save", "", "--auto-aof-rewrite-percentage", "0"),
            ],
            log_path=folder / "redis.log",
        )

    def _await_ready(self) -> int:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError, LoadError):
                if ask(self._chosen, b"PING") == b"PONG":
                    return self._chosen
            time.sleep(0.02)
        raise ServerError(f"redis-server does not answer\n{self.log_tail()}")


@dataclass(frozen=True, slots=True)
class Load:
    """What redis-benchmark is to do: `options` of its own, then the words of a command if it is
    none of its tests."""

    options: tuple[str, ...]
    command: tuple[str, ...] = ()


class Benchmark:
    """Runs redis-benchmark against a server."""

    def __init__(self, programs: Path) -> None:
        self._program = str(programs / "redis-benchmark")

    def run(self, server: ServerProcess, port: int, load: Load, requests: int) -> Timed:
        """One run; the rate is what redis-benchmark says, without its connecting and ending."""
        command = [self._program, "-h", HOST, "-p", str(port), "-n", str(requests), "--csv"]
        begun_s = server.cpu_seconds()
        done = subprocess.run(
            [*command, *load.options, *load.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        server_s = server.cpu_seconds() - begun_s
        rows = list(csv.reader(line for line in done.stdout.splitlines() if line[:1] == '"'))
        if done.returncode or len(rows) < 2 or "rror" in done.stdout:
            raise LoadError(f"redis-benchmark {load}: {done.stdout[:500]}")
        rate = float(rows[-1][1])
        return Timed(requests, requests / rate, server_s, 0.0)


def ask(port: int, *words: bytes) -> object:
    """The reply to one command. Raises LoadError if it is an error."""
    reader = hiredis.Reader()
    with socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(pack(words))
        while (reply := reader.gets()) is False:
            data = connection.recv(65_536)
            if not data:
                raise LoadError(f"{words[0]!r} was not answered")
            reader.feed(data)
    if isinstance(reply, hiredis.ReplyError):
        raise LoadError(f"{words[0]!r}: {reply}")
    return reply


def pack(words: Sequence[bytes]) -> bytes:
    """A request on the wire."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
