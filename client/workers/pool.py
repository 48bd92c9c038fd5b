"""Pool: the parent of the processes of `delaylog worker`, each of which runs one application.

Each process (`pool_process`) runs all consumers and tasks of the application. Over a socket it says
whether they are connected, and it ends when the parent is gone. A Slot is one place of the pool:
its process, what that says of itself, and when to start the next one.

SIGTERM or SIGINT asks every process to end; each gives its handlers the `grace` of their
consumers, and is killed if it has not ended some seconds later. A second signal kills the processes
at once. A process that dies is started again, after a wait that grows while processes die early.
The exit status UNUSABLE of a process ends the pool; with `reload` it waits for a change of the
sources instead. Changes of source files are noticed by their times, which needs no package and
works everywhere. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from delaylog.client.workers.consumer import Backoff
from delaylog.client.workers.pool_process import APART, CONNECTED, REASON, STOP, UNUSABLE
from delaylog.client.workers.signals import DUPLICATE_S, WATCHED

# -------------------------------------------------------------------------- one place of a pool

AGAIN: Final = Backoff(timedelta(milliseconds=500), timedelta(seconds=30))
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
        module = "delaylog.client.workers.pool_process"
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
        if now_s - self._started_at_s >= STEADY_S:
            self._failures = 0
        self.failed(now_s)
        return status

    def failed(self, now_s: float) -> None:
        """Schedule the next start after one more failure."""
        self._failures += 1
        self.start_at_s = now_s + AGAIN.delay_ms(self._failures, 0.0) / 1000

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


# ----------------------------------------------------------------------------------- the parent

# Notices changes of source files by their times, which needs no package and works everywhere.

PASSED_OVER: Final = {"__pycache__", "node_modules"}


class Sources:
    """The Python files below a folder, without hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(self._times())

    def changed(self) -> list[str]:
        """The files that were changed, added or removed since the last call, by their paths."""
        before, self._seen = self._seen, dict(self._times())
        names = before.keys() | self._seen.keys()
        return sorted(name for name in names if before.get(name) != self._seen.get(name))

    def _times(self) -> Iterator[tuple[str, int]]:
        for folder, folders, files in os.walk(self._folder):
            if "pyvenv.cfg" in files:
                folders.clear()
                continue
            folders[:] = [name for name in folders if name[0] != "." and name not in PASSED_OVER]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        yield os.path.relpath(path, self._folder), os.stat(path).st_mtime_ns
                    except FileNotFoundError:
                        # Editors replace files.
                        continue


logger = logging.getLogger("delaylog.worker")

POLL_S: Final = 0.1
HEALTH_S: Final = 1.0
SOURCES_S: Final = 1.0
PROCESSES_MAX: Final = 256

clock = time.monotonic


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What to run, and in how many processes. ValueError for an impossible number."""

    command: Command
    processes: int = 1
    health_file: Path | None = None
    """The file that is touched each second while all processes are connected."""
    reload: bool = False
    """Whether changes of the sources below the current folder restart the processes."""

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= PROCESSES_MAX:
            raise ValueError(f"processes lies from 1 to {PROCESSES_MAX}: {self.processes}")


class Pool:
    """The processes. Call `run` once, in the main thread."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._slots = [Slot(number) for number in range(1, options.processes + 1)]
        self._signalled_at_s: list[float] = []
        """When each signal arrived."""
        self._unusable = False
        self._touch_at_s = 0.0
        self._sources_at_s = 0.0
        self._sources = Sources(Path.cwd()) if options.reload else None

    def run(self) -> int:
        """Run until a signal: returns 0. Returns 1 if the application cannot run."""
        before = {number: signal.signal(number, self._on_signal) for number in WATCHED}
        try:
            while not self._signalled_at_s:
                self._step(clock())
                if self._unusable and self._sources is None:
                    self._stop()
                    return 1
                time.sleep(POLL_S)
            logger.info("stopping; another signal ends the processes at once")
            self._stop()
            return 0
        finally:
            for slot in self._slots:
                slot.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._options.health_file is not None:
                self._options.health_file.unlink(missing_ok=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        now_s = clock()
        # `timeout` signals a process and its group: that is one signal.
        if not self._signalled_at_s or now_s - self._signalled_at_s[-1] > DUPLICATE_S:
            self._signalled_at_s.append(now_s)

    def _step(self, now_s: float) -> None:
        """Check the processes, the health file and the sources once."""
        for slot in self._slots:
            if slot.hear(now_s) and slot.process is not None:
                logger.info("process %d (pid %d): started", slot.number, slot.process.pid)
            if (status := slot.ended(now_s)) is not None:
                self._ended(slot, status, now_s)
            elif slot.start_at_s is not None and now_s >= slot.start_at_s and not self._unusable:
                self._start(slot, now_s)
        if now_s >= self._touch_at_s:
            self._touch_at_s = now_s + HEALTH_S
            self._touch(now_s)
        if self._sources is not None and now_s >= self._sources_at_s:
            self._sources_at_s = now_s + SOURCES_S
            if changed := self._sources.changed():
                logger.info("%s changed: restarting", ", ".join(changed[:5]))
                self._stop()
                self._unusable = False
                for slot in self._slots:
                    slot.reset()

    def _start(self, slot: Slot, now_s: float) -> None:
        try:
            slot.start(self._options.command, now_s)
        except OSError as error:
            # The machine may have room again soon; the other processes go on meanwhile.
            slot.failed(now_s)
            assert slot.start_at_s is not None
            again = "process %d could not be started: %s: another try in %.1f s"
            logger.warning(again, slot.number, error, slot.start_at_s - now_s)

    def _ended(self, slot: Slot, status: int, now_s: float) -> None:
        if status == UNUSABLE:
            # One line, although each process has found the same.
            if not self._unusable:
                then = "" if self._sources is None else "; waiting for a change"
                logger.error("%s%s", slot.reason, then)
            self._unusable = True
            return
        how = f"signal {-status}" if status < 0 else f"status {status}"
        if self._unusable:
            logger.warning("process %d ended by %s", slot.number, how)
            return
        assert slot.start_at_s is not None
        wait_s = slot.start_at_s - now_s
        again = "process %d ended by %s: starting another one in %.1f s"
        logger.warning(again, slot.number, how, wait_s)

    def _touch(self, now_s: float) -> None:
        path = self._options.health_file
        if path is None or not all(slot.connected(now_s) for slot in self._slots):
            return
        try:
            path.touch()
        except OSError as error:
            logger.error("the health file cannot be written: %s", error)

    def _stop(self) -> None:
        """Ask the processes to end, and wait for them; a further signal kills them."""
        signals = len(self._signalled_at_s)
        began_s = clock()
        for slot in self._slots:
            slot.signal(signal.SIGTERM)
        while living := [slot for slot in self._slots if slot.process is not None]:
            # The first signal during a restart asks for a stop, which is in progress already.
            at_once = len(self._signalled_at_s) > max(signals, 1)
            for slot in living:
                slot.hear(clock())
                if at_once or clock() > began_s + slot.stop_s:
                    if not at_once:
                        late = "process %d has not ended within %.0f s: it is killed"
                        logger.error(late, slot.number, slot.stop_s)
                    slot.kill()
                slot.ended(clock())
            time.sleep(POLL_S / 2)
