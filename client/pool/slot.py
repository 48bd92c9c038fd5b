"""One place of a pool: its process, what that says of itself, and when to start the next one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from delaylog.client.pool.child import APART, CONNECTED, REASON, STOP
from delaylog.client.workers.backoff import Backoff

AGAIN: Final = Backoff(first_ms=500, max_ms=30_000)
"""The wait before a process is started again."""
STEADY_S: Final = 10.0
"""A process that has lived this long is started again after the shortest wait."""
TOLD_S: Final = 5.0
"""What a process said of itself counts for this long; it speaks each second."""
IMPORT_STOP_S: Final = 2.0
"""How long a process may take to end that has not begun to run: it holds no messages."""


@dataclass(frozen=True, slots=True)
class Command:
    """What each process runs."""

    application: str
    log_level: str
    log_form: str = "text"
    """`text` or `json`."""

    def words(self, fd: int) -> list[str]:
        """The command line; `fd` joins the process to its parent."""
        # -P: the current folder must not hide modules that Python or delaylog import.
        module = "delaylog.client.pool.child"
        logs = (self.log_level, self.log_form)
        return [sys.executable, "-P", "-m", module, self.application, str(fd), *logs]


class Slot:
    """Times are seconds of one monotonic clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at_s: float | None = 0.0
        """When to start a process; None while there is one."""
        self._socket: socket.socket | None = None
        self._started_at_s = 0.0
        self._failures = 0
        self._connected_at_s: float | None = None
        self._spoke = False
        self._heard = b""
        """The beginning of a line."""
        self.reason = ""
        """Why another start would not help, as the process says."""
        self.stop_s = IMPORT_STOP_S
        """How long the process may take to end after SIGTERM, as it says."""

    def start(self, command: Command, now_s: float) -> None:
        """Start a process, in a session of its own: signals of the terminal go to the parent."""
        ours, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                command.words(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._started_at_s = now_s
        self.start_at_s = self._connected_at_s = None
        self._spoke = False
        self._heard, self.reason, self.stop_s = b"", "", IMPORT_STOP_S

    def hear(self, now_s: float) -> bool:
        """Read what the process says; returns whether it speaks for the first time."""
        if self._socket is None:
            return False
        try:
            self._heard += self._socket.recv(65_536)
        except (BlockingIOError, ConnectionError):
            return False
        *lines, self._heard = self._heard.split(b"\n")
        spoke = self._spoke
        for line in lines:
            word, _, text = line.decode().partition(" ")
            if word == REASON:
                self.reason = json.loads(text)
            elif word == STOP:
                self.stop_s = float(text)
            elif word in (CONNECTED, APART):
                self._connected_at_s = now_s if word == CONNECTED else None
                self._spoke = True
        return self._spoke and not spoke

    def connected(self, now_s: float) -> bool:
        """Whether the process lives, and said lately that its consumers are connected."""
        told_at_s = self._connected_at_s
        return told_at_s is not None and now_s - told_at_s < TOLD_S

    def ended(self, now_s: float) -> int | None:
        """The exit status of the process if it has ended; the next one is scheduled then."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        self.hear(now_s)
        self._leave()
        self._failures = 1 if now_s - self._started_at_s >= STEADY_S else self._failures + 1
        self.start_at_s = now_s + AGAIN.delay_ms(self._failures, 0.0) / 1000
        return status

    def reset(self) -> None:
        """Start the next process at once: the application has changed."""
        self._failures = 0
        self.start_at_s = 0.0

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it lives."""
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End the process now, if it lives."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _leave(self) -> None:
        self.process = self._connected_at_s = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
