"""Signals of a program that runs workers: asked once it ends, whatever it does when they come."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from delaylog.client.workers.signals import Signals
from tests.programs import run_program

HEAD = """
import os, signal, sys, threading, time
from delaylog.client.workers.signals import Signals

def ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

lock, asked = threading.Lock(), threading.Event()

def end():
    with lock:
        asked.set()

"""
WAITS = """
    assert asked.wait(30)
print("ended")
"""
ENDING = {
    "while the main thread holds what is needed to end": """
with Signals(end, limit_s=60):
    with lock:
        ask()
        time.sleep(0.1)
""",
    "while threads are started": """
with Signals(end, limit_s=60):
    with threading._active_limbo_lock:
        ask(signal.SIGINT)
        time.sleep(0.1)
""",
    # As `timeout` sends it: to the process, and to its group.
    "twice at once": """
with Signals(end, limit_s=60):
    ask()
    ask()
""",
    # A child runs no worker that could stop; `multiprocessing` ends its children in this way.
    "after one of a forked child, which ends": """
with Signals(end, limit_s=60):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"x")
        time.sleep(40)
        os._exit(0)
    os.read(reading, 1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert not asked.is_set()
    ask()
""",
}


def ran(program: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, since what goes wrong here is that it does not end."""
    return run_program(sys.executable, "-c", HEAD + program)


@pytest.mark.parametrize("when", ENDING)
def test_a_signal_ends_the_program(when: str) -> None:
    done = ran(ENDING[when].rstrip() + WAITS)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        (
            "with Signals(lambda: None, limit_s=0.2): ask(); time.sleep(60)",
            128 + signal.SIGTERM,
            "handlers block the shutdown, 0.2 s after it began",
        ),
        (
            "with Signals(lambda: 1 / 0, limit_s=0.2): ask(); time.sleep(60)",
            128 + signal.SIGTERM,
            "ZeroDivisionError",
        ),
        (
            "with Signals(lambda: None, limit_s=60): ask(); time.sleep(0.3); ask(); time.sleep(60)",
            -signal.SIGTERM,
            "",
        ),
    ],
    ids=["left after its limit", "left when the shutdown fails", "ended by the second signal"],
)
def test_a_program_that_does_not_end(program: str, status: int, said: str) -> None:
    done = ran(program)
    assert done.returncode == status
    assert said in done.stderr


def test_afterwards_signals_are_what_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals(lambda: None, limit_s=60):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    for thread in threading.enumerate():
        if thread.name == "delaylog-signals":
            thread.join(timeout=10)
            assert not thread.is_alive()
