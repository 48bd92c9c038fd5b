"""The command on a terminal: what it shows, what is typed, and how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from tests.starts.warm import WarmProcess


class Terminal:
    """A command on a terminal of some size."""

    def __init__(
        self,
        *words: str,
        typing: bool = False,
        zone: str = "UTC",
        lines: int = 24,
        width: int = 80,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))
        # They would be believed before the terminal; pytest-xdist sets them.
        sizes = ("COLUMNS", "LINES")
        environment = {name: value for name, value in os.environ.items() if name not in sizes}
        self._nothing = os.open(os.devnull, os.O_RDONLY)
        self.shown = b""
        self.process = WarmProcess(
            *words,
            stdin=theirs if typing else self._nothing,
            stdout=theirs,
            stderr=theirs,
            environment={**environment, "TZ": zone},
        )
        os.close(theirs)

    def until(self, text: bytes, *, from_now: bool = False) -> None:
        """Read until it has shown this."""
        self.shown, end_s = b"" if from_now else self.shown, time.monotonic() + 60
        while text not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], 1)
            assert time.monotonic() < end_s, self.shown[-10_000:]
            if ready:
                self.shown += os.read(self._ours, 65_536)

    def end(self) -> int:
        """Its status; what it has shown is read to the end."""
        try:
            while part := os.read(self._ours, 65_536):
                self.shown += part
        except OSError:
            pass  # Linux says EIO when the other side is closed.
        return self.process.wait(30)

    def lines(self) -> list[str]:
        """All that it has shown, when it has ended."""
        assert self.end() == 0, self.shown
        return re.sub(r"\x1b\[[0-9;]*m", "", self.shown.decode()).splitlines()

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def close(self) -> None:
        self.process.kill()
        os.close(self._ours)
        os.close(self._nothing)
