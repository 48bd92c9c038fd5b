"""Processes of `delaylog` that begin with everything loaded, for tests that do not test loading.

A start of the command takes half a second of a processor, nearly all of it for loading modules, and
tests make more than a thousand. `starter.py` has loaded them once for each process of pytest and
forks. What comes of it is a process like any other: it has its own streams, arguments, environment
and folder, takes signals, and ends with a status. Two things are not as in a real start. Which
modules a verb loads is for tests that start the command in earnest. And forks share the seed of
hashes, while what a broker makes of its log must not hang on the order of a set: so there are two
starters, and who starts a broker again, or another node of a cluster, takes the other one.

Over the socket go requests, each a JSON object with the descriptors of the process's three streams
and of a pipe, by which come the process's id and at last its status, eight bytes each.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Final

PROGRAM: Final = str(Path(sys.executable).parent / "delaylog")
STARTER: Final = Path(__file__).with_name("starter.py")
NUMBER: Final = struct.Struct("<q")
INPUT_BYTES_MAX: Final = 1 << 20
"""Standard input is written before the process begins, and this is what a pipe may hold."""
END_S: Final = 30.0


class WarmProcess:
    """A process of `delaylog`; has what tests use of a `subprocess.Popen`."""

    def __init__(
        self,
        *words: str,
        stdin: int,
        stdout: int,
        stderr: int,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        turn: int = 0,
        hidden: Collection[str] = (),
    ) -> None:
        """The streams are descriptors, which stay the caller's. An even `turn` has one seed of
        hashes, an odd one another. `hidden` = modules that are not installed there.
        """
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        # Several threads may wait, and the number of a closed descriptor may be another's.
        weakref.finalize(self, os.close, self._told)
        self._taking = threading.Lock()
        request = {
            "words": [PROGRAM, *words],
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "hidden": [*hidden],
        }
        streams = [stdin, stdout, stderr, telling]
        socket.send_fds(_door(turn % 2), [json.dumps(request).encode()], streams)
        os.close(telling)
        self.pid = self._number()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its status, or None while it runs; minus the number of a signal that ended it."""
        if self.returncode is None and self._ended(0):
            self._take_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status, waited for. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not self._ended(timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(PROGRAM, timeout)
            self._take_status()
        assert self.returncode is not None
        return self.returncode

    def _ended(self, timeout: float | None) -> bool:
        # Not `select`, which takes no descriptor beyond 1,023: a process of many drills has more.
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _take_status(self) -> None:
        with self._taking:
            if self.returncode is None:
                self.returncode = self._number()

    def _number(self) -> int:
        raw = os.read(self._told, NUMBER.size)
        assert len(raw) == NUMBER.size, "the process that starts others has ended"
        number: int = NUMBER.unpack(raw)[0]
        return number


def run_warm(
    *words: object,
    stdin: bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end, as `subprocess.run` does. Raises subprocess.TimeoutExpired."""
    texts = [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in words]
    reading, writing = os.pipe()
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    try:
        assert len(stdin) <= INPUT_BYTES_MAX
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, INPUT_BYTES_MAX)
        os.write(writing, stdin)
        os.close(writing)
        process = WarmProcess(
            *texts, stdin=reading, stdout=out, stderr=err, folder=folder, environment=environment
        )
        try:
            status = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait(END_S)
            raise
        printed, said = (os.pread(each, os.fstat(each).st_size, 0) for each in (out, err))
    finally:
        for each in (reading, out, err):
            os.close(each)
    return subprocess.CompletedProcess([PROGRAM, *texts], status, printed, said)


def as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """The same, with what it printed as text."""
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@cache
def _door(_which: int) -> socket.socket:
    """The socket to one of this process's starters, which is begun by the first who asks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    starter = subprocess.Popen(
        [sys.executable, "-P", str(STARTER), str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        starter.wait(END_S)

    atexit.register(end)
    return ours
