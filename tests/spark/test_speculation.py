"""Speculation: two attempts of a task at once, on a standalone cluster of two workers.

Spark starts no second attempt on a host that has the first, so the workers say two names of this
machine. The first attempt at a task dawdles; the second overtakes it, and what the loser had
staged, and what it still sends afterwards, counts for nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from delaylog.client.child_broker import free_port
from tests.programs import run_program
from tests.spark.frames import ids_of
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT, prepare_environment
from tests.spark.speculating import LOAD, ROWS
from tests.waiting import await_that

START_S = 180
DEPLOY = "org.apache.spark.deploy"


@pytest.mark.drill
def test_the_slower_of_two_attempts_counts_for_nothing(real: RealBroker, tmp_path: Path) -> None:
    prepare_environment()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        log = stack.enter_context(daemon(tmp_path, "master", "master.Master", words))
        wait_for(log, "New state: ALIVE")
        for host in ("127.0.0.1", "localhost"):
            words = ["--host", host, "--cores", "2", "--memory", "1g", "--webui-port", "0"]
            words += ["--work-dir", str(tmp_path / f"work-{host}"), master]
            log = stack.enter_context(daemon(tmp_path, host, "worker.Worker", words))
            wait_for(log, "Successfully registered with master")
        command = [sys.executable, "-m", "tests.spark.speculating", master, real.url, str(tmp_path)]
        found = run_program(*command, cwd=ROOT, timeout=600)
    assert found.returncode == 0, found.stdout + found.stderr[-5_000:]
    load = real.settled(LOAD)
    assert load["rows"] == ROWS
    assert load["discarded_rows"] > 0, "nobody was overtaken, so this shows nothing"
    real.assert_holds(ids_of(0, ROWS))


@contextmanager
def daemon(folder: Path, name: str, kind: str, words: list[str]) -> Iterator[Path]:
    """A process of the standalone cluster; its log. Executors are in its process group."""
    program = Path(sys.executable).parent / "spark-class"
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            [str(program), f"{DEPLOY}.{kind}", *words],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield path
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def wait_for(log: Path, text: str) -> None:
    await_that(lambda: text in log.read_text(), log.read_text, seconds=START_S, pause_s=0.1)
