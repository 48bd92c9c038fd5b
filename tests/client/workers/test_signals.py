"""Signals of a program that runs workers: asked once it ends, whatever it does when they come."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from delaylog.client.workers.signals import Signals
from tests.programs import run_program


def ends(program: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, since what goes wrong here is that it does not end."""
    head = """
        import os, signal, sys, threading, time
        from delaylog.client.workers.signals import Signals

        def ask(number=signal.SIGTERM):
            os.kill(os.getpid(), number)
    """
    text = textwrap.dedent(head) + textwrap.dedent(program)
    return run_program(sys.executable, "-c", text)


def test_a_signal_that_comes_while_the_main_thread_holds_what_is_needed_to_end() -> None:
    done = ends("""
        lock, asked = threading.Lock(), threading.Event()

        def first():
            with lock:
                asked.set()

        with Signals(first, limit_s=60):
            with lock:
                ask()
                time.sleep(0.1)
            assert asked.wait(30)
        print("ended")
    """)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_a_signal_that_comes_while_threads_are_started() -> None:
    done = ends("""
        asked = threading.Event()
        with Signals(asked.set, limit_s=60):
            with threading._active_limbo_lock:
                ask(signal.SIGINT)
                time.sleep(0.1)
            assert asked.wait(30)
        print("ended")
    """)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_one_that_does_not_end_is_left() -> None:
    done = ends("""
        with Signals(lambda: None, limit_s=0.2):
            ask()
            time.sleep(60)
    """)
    assert done.returncode == 128 + signal.SIGTERM
    assert "handlers block the shutdown, 0.2 s after it began" in done.stderr


def test_the_second_signal_ends_it_at_once() -> None:
    done = ends("""
        with Signals(lambda: None, limit_s=60):
            ask()
            time.sleep(0.3)
            ask()
            time.sleep(60)
    """)
    assert done.returncode == -signal.SIGTERM


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    """As `timeout` sends it: to the process, and to its group."""
    done = ends("""
        asked = threading.Event()
        with Signals(asked.set, limit_s=60):
            ask()
            ask()
            assert asked.wait(30)
        print("ended")
    """)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_afterwards_signals_are_what_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals(lambda: None, limit_s=60):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    for thread in threading.enumerate():
        if thread.name == "delaylog-signals":
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_only_in_the_main_thread() -> None:
    failures: list[BaseException] = []

    def run() -> None:
        with pytest.raises(RuntimeError, match="only the main thread can") as caught:
            Signals(lambda: None, limit_s=1).__enter__()
        failures.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failures


def test_a_forked_child_ends_at_its_first_signal() -> None:
    """It runs no worker that could stop; `multiprocessing` ends its children in this way."""
    done = ends("""
        asked = threading.Event()
        with Signals(asked.set, limit_s=60):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writing, b"x")
                time.sleep(40)
                os._exit(0)
            os.read(reading, 1)
            os.kill(child, signal.SIGTERM)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asked.is_set())
            ask()
            assert asked.wait(30)
    """)
    assert (done.returncode, done.stdout) == (0, "-15 False\n"), done.stderr
