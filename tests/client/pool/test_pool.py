"""The command `delaylog worker`, with real processes and a real broker.

The application writes a line for each message: the process, its version, and the body.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from delaylog.client.workers import pool_process
from delaylog.client.workers.pool import AGAIN, STEADY_S, Command, Pool, PoolOptions, Slot
from delaylog.client.workers.pool_process import UNUSABLE
from tests.client.workers.live import Live
from tests.waiting import await_that as await_within

PROGRAM: Final = str(Path(sys.executable).with_name("delaylog"))

LIMIT_S: Final = 90.0
"""A process takes seconds of a processor to start, and some tests start one after another."""

await_that = partial(await_within, seconds=LIMIT_S)

THREADS: Final = """
import os, time
from datetime import timedelta
from delaylog import Client
client = Client(os.environ["APP_URL"], namespace=os.environ["APP_NAMESPACE"])

def note(*words):
    with open("book", "a") as book:
        print(os.getpid(), "v1", *words, file=book, flush=True)

@client.consumer("t", concurrency=2, wait=timedelta(seconds=0.3), lease=timedelta(seconds=2))
def handle(message):
    if message.text == "exit" and message.attempts == 1:
        os._exit(9)
    note("begin", message.text)
    time.sleep(0.8 if message.text == "slow" else 0.01)
    note("end", message.text)
"""

TASKS: Final = """
import os
from delaylog import AsyncClient
client = AsyncClient(os.environ["APP_URL"], namespace=os.environ["APP_NAMESPACE"])

@client.task("t")
async def add(number):
    with open("book", "a") as book:
        print(os.getpid(), "v1 end", number, file=book, flush=True)
"""


class Place:
    """A folder with an application, and what its handlers wrote."""

    def __init__(self, folder: Path, live: Live, **env: str) -> None:
        self.folder = folder
        self.live = live
        self.health = folder / "healthy"
        own = {"APP_URL": live.url, "APP_NAMESPACE": live.namespace}
        self.env = {**os.environ, **own, **env}

    def write(self, text: str) -> None:
        (self.folder / "shop_app.py").write_text(text)

    def lines(self) -> list[list[str]]:
        """The complete lines."""
        book = self.folder / "book"
        rows = book.read_text().split("\n")[:-1] if book.exists() else []
        return [row.split() for row in rows]

    def ended(self) -> list[str]:
        return sorted(row[3] for row in self.lines() if row[2] == "end")

    @contextmanager
    def pool(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [PROGRAM, "worker", "shop_app:client", *options],
            cwd=self.folder,
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path, live: Live) -> Place:
    return Place(tmp_path, live)


def stop(process: subprocess.Popen[str]) -> str:
    """End it, gracefully; returns its log."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, log
    return log


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_processes_share_the_messages_and_stop_gracefully(place: Place) -> None:
    place.write(THREADS)
    place.live.send([f"{n:02}" for n in range(40)])
    with place.pool("--processes", "2", "--health-file", str(place.health)) as process:
        await_that(lambda: len(place.ended()) == 40)
        await_that(place.health.exists)
        place.live.send(["slow"] * 2)
        await_that(lambda: [row for row in place.lines() if row[2:] == ["begin", "slow"]])
        log = stop(process)
    assert place.ended().count("slow") == place.live.counts()["acked"] - 40 >= 1
    assert not place.health.exists()
    assert log.count(": started\n") == 2
    assert log.count("t: stopped") == 2
    assert all(is_gone(int(row[0])) for row in place.lines())


def test_a_process_that_dies_is_replaced(place: Place) -> None:
    place.write(THREADS)
    place.live.client.put_topic("t", {"backoff": {"first_ms": 0}})
    with place.pool() as process:
        place.live.send(["exit"])
        await_that(lambda: place.ended() == ["exit"])
        log = stop(process)
    assert "process 1 ended by status 9: starting another one in 0.5 s" in log


def test_tasks_run_and_the_health_file_grows_old_without_a_broker(
    tmp_path: Path, killable: Live
) -> None:
    place = Place(tmp_path, killable)
    place.write(TASKS)
    place.live.client.send("t", '{"task":"add","args":[5]}')
    with place.pool("--health-file", "healthy") as process:
        await_that(lambda: place.ended() == ["5"])
        first = await_that(lambda: place.health.exists() and place.health.stat().st_mtime_ns)
        await_that(lambda: place.health.stat().st_mtime_ns > first)
        killable.kill()
        await_that(lambda: time.time() - place.health.stat().st_mtime > 3)
        killable.restart()
        await_that(lambda: time.time() - place.health.stat().st_mtime < 2)
        stop(process)


def test_changed_sources_restart_the_processes(place: Place) -> None:
    """Also after a change that cannot be imported."""
    place.write(THREADS)
    with place.pool("--reload") as process:
        place.live.send(["one"])
        await_that(lambda: place.ended() == ["one"])
        place.write("import shop_absent")
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        wanted = "cannot be imported: ModuleNotFoundError: No module named 'shop_absent'; waiting"
        assert any(wanted in line for line in lines)
        place.write(THREADS.replace("v1", "v2"))
        place.live.send(["two"])
        await_that(lambda: place.ended() == ["one", "two"])
        assert place.lines()[-1][1] == "v2"
        stop(process)


def refused(place: Place, text: str, *options: str) -> str:
    """The log of a pool that does not run."""
    place.write(text)
    with place.pool(*options) as process:
        _, log = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1
    return log


def test_what_no_start_can_help_ends_the_pool(place: Place) -> None:
    two = ("--processes", "2")
    (line,) = refused(place, "client = 5", *two).splitlines()
    assert "is a int, not a client" in line
    (line,) = refused(place, THREADS.partition("@client")[0], *two).splitlines()
    assert "there is nothing to run" in line
    group = THREADS.replace('"t",', '"t", group="nobody",')
    place.live.client.put_topic("t", {})
    *_, said = map(json.loads, refused(place, group, "--json").splitlines())
    assert (said["level"], said["logger"]) == ("error", "delaylog.worker")
    assert "the consumer of t/nobody was refused" in said["message"]
    assert said["pid"] > 0


def test_a_second_signal_kills(place: Place) -> None:
    place.write(THREADS.replace("0.8", "60"))
    place.live.send(["slow"])
    with place.pool() as process:
        await_that(lambda: [row for row in place.lines() if row[2:] == ["begin", "slow"]])
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
    assert is_gone(int(place.lines()[0][0]))


def test_processes_end_with_their_parent(place: Place) -> None:
    place.write(THREADS)
    place.live.send(["one"])
    with place.pool() as process:
        await_that(lambda: place.ended() == ["one"])
        process.kill()
        process.wait()
        await_that(lambda: is_gone(int(place.lines()[0][0])))


def test_messages_of_a_killed_process_and_of_a_killed_pool_come_back(place: Place) -> None:
    """After their leases, to whoever runs then; no process stays behind."""
    place.write(THREADS.replace("0.8", "3"))

    def begun() -> list[int]:
        """The processes that have begun a message, in order."""
        return [int(row[0]) for row in place.lines() if row[2] == "begin"]

    place.live.client.put_topic("t", {"backoff": {"first_ms": 0}})
    options = ("--processes", "2", "--health-file", str(place.health))
    with place.pool(*options) as process:
        await_that(place.health.exists)
        place.live.send(["slow"])
        (victim,) = await_that(begun)
        os.kill(victim, signal.SIGKILL)
        await_that(lambda: place.ended() == ["slow"])
        await_that(lambda: place.live.counts() == {"acked": 1}, place.live.counts)
        before = len(begun())
        # The health file is renewed again: the killed process was replaced.
        now_s = time.time()
        await_that(lambda: place.health.stat().st_mtime > now_s)
        place.live.send(["slow"])
        await_that(lambda: len(begun()) > before)
        process.kill()
        process.wait()
    pids = {int(row[0]) for row in place.lines()}
    await_that(lambda: all(map(is_gone, pids)))
    await_that(lambda: time.time() - place.health.stat().st_mtime > 3)
    # What its handler did in the grace period counts.
    assert place.ended() == ["slow"] * 2
    assert place.live.counts() == {"acked": 2}


def test_a_blocked_process_ends_with_its_parent_too(place: Place) -> None:
    """Its message comes back after its lease."""
    place.write(
        THREADS.replace("0.8", "600").replace(
            "lease=timedelta(seconds=2)", "lease=timedelta(seconds=2), grace=timedelta(seconds=1)"
        )
    )
    place.live.send(["slow"])
    with place.pool() as process:
        await_that(place.lines)
        process.kill()
        process.wait()
    await_that(lambda: is_gone(int(place.lines()[0][0])))
    await_that(lambda: place.live.counts() == {"ready": 1}, place.live.counts)


def test_a_process_outlives_the_suspension_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which reads nothing meanwhile, until the socket between them is full."""
    asked: list[None] = []
    signals: list[int] = []
    application = SimpleNamespace(connected=lambda: asked.append(None))
    own = SimpleNamespace(getpid=os.getpid, kill=lambda _, number: signals.append(number))
    monkeypatch.setattr(pool_process, "os", own)
    monkeypatch.setattr(pool_process, "TELL_S", 0.001)
    parent, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with theirs:
        telling = threading.Thread(target=pool_process._tell, args=(theirs, application))
        telling.start()
        await_that(lambda: signals or len(asked) > 1_000)
        assert signals == []
        parent.close()
        telling.join()
    assert signals == [signal.SIGTERM]


def test_a_log_promises_no_start_that_does_not_come(caplog: pytest.LogCaptureFixture) -> None:
    """While an application that cannot run waits for a change, what else ends stays away."""
    pool = Pool(PoolOptions(Command("a:b", "info"), processes=2, reload=True))
    broken, killed = Slot(1), Slot(2)
    broken.reason, killed.start_at_s = "a:b cannot be imported", 1.5
    pool._ended(killed, -9, 1.0)
    pool._ended(broken, UNUSABLE, 1.0)
    pool._ended(killed, -9, 1.0)
    assert caplog.messages == [
        "process 2 ended by signal 9: starting another one in 0.5 s",
        "a:b cannot be imported; waiting for a change",
        "process 2 ended by signal 9",
    ]


def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine has no room for it at the moment; the others must not end because of it."""

    def full(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    pool = Pool(PoolOptions(Command("a:b", "info")))
    monkeypatch.setattr(subprocess, "Popen", full)
    for now_s in (1.0, 1.1, 2.0):
        pool._step(now_s)
    (slot,) = pool._slots
    assert slot.process is None
    assert caplog.messages == [
        "process 1 could not be started: no more processes: another try in 0.5 s",
        "process 1 could not be started: no more processes: another try in 1.0 s",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop_app"], "such as shop_app:client"),
        (["shop_app:client", "--processes", "0"], "processes lies from 1 to 256"),
        (["shop_app:client", "--processes", "257"], "processes lies from 1 to 256"),
        (["shop_app:client", "--health-file", "absent/x"], "of the health file does not exist"),
    ],
)
def test_wrong_words(tmp_path: Path, words: list[str], said: str) -> None:
    done = subprocess.run(
        [PROGRAM, "worker", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_the_wait_grows_while_processes_die_soon() -> None:
    class Dead:
        """A process that has ended."""

        def poll(self) -> int:
            return UNUSABLE

    slot = Slot(1)

    def died(after_s: float, now_s: float) -> float:
        slot.process = Dead()  # type: ignore[assignment]
        slot._started_at_s = now_s - after_s
        assert slot.ended(now_s) == UNUSABLE
        assert slot.start_at_s is not None
        return slot.start_at_s - now_s

    waits = [died(0.1, 100.0) for _ in range(8)]
    assert waits == sorted(waits)
    assert waits[-1] == AGAIN.max.total_seconds()
    assert died(STEADY_S, 100.0) == AGAIN.first.total_seconds()
    assert slot.ended(100.0) is None
