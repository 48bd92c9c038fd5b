"""The end of a broker: it comes whatever the disk, a signal or a bug does, and frees the folder."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.broker.embedded import ClosedError, ConfigError, EmbeddedBroker, ManualClock
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.host.system.folder_lock import lock_folder
from delaylog.client.shards.receives import Wanted
from delaylog.storage.files.os_file_system import OsFile
from tests.waiting import await_that

Nodes = list[EmbeddedNode]
SOURCE = str(Path(delaylog.__file__).parents[1])


def clock(*, manual: bool) -> ManualClock | None:
    return ManualClock() if manual else None


def ended(call: Callable[[], Any]) -> BaseException | None:
    """What a call raised, which must end; the test goes on if it does not."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it never ended"
    return raised[0] if raised else None


@contextmanager
def ctrl_c_once(ready: threading.Event) -> Iterator[None]:
    """Interrupts the block, which is on the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    met = threading.Event()

    def press() -> None:
        assert ready.wait(30)
        # A signal between the last look for one and the wait for a lock does not end that wait.
        again = True
        while again:
            signal.pthread_kill(main, signal.SIGINT)
            again = not met.wait(5)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(press)
        try:
            with pytest.raises(KeyboardInterrupt):
                yield
        finally:
            met.set()


def raises(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("manual", [True, False])
@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
@pytest.mark.parametrize("broken", ["fdatasync", "pwritev"])
def test_close_ends_if_the_disk_fails_meanwhile(
    open_embedded: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    fsync: str,
    manual: bool,
) -> None:
    """It tells that, and frees the folder."""
    broker = open_embedded(tmp_path / "f", fsync=fsync, clock=clock(manual=manual))
    broker.send("t", "x", id="answered")
    broker.send("t", "nobody waited", wait=False)
    with monkeypatch.context() as patched:
        patched.setattr(OsFile, broken, lambda *_: raises(OSError(5, "EIO")))
        error = ended(broker.close)
    # A manual clock without syncs needs none.
    assert error is not None or (manual and fsync == "never")
    again = open_embedded(tmp_path / "f", clock=clock(manual=manual))
    assert "answered" in [message.id for message in again.browse("t")]


def test_close_tells_a_bug_in_the_last_checkpoint(
    nodes: Nodes, open_embedded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread and no file of the folder is left behind."""
    before = threading.enumerate()
    broker = open_embedded(tmp_path / "f")
    broker.send("t", "x")
    monkeypatch.setattr(
        nodes[0].engine.upkeep, "checkpoint", lambda _: raises(OverflowError("bug"))
    )
    with pytest.raises(OverflowError, match="bug"):
        broker.close()
    broker.close()
    # Other tests of this process may have left some.
    left = [each.name for each in threading.enumerate() if each not in before]
    assert not [name for name in left if name.startswith("delaylog")]
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    open_files = [os.readlink(link) for link in links if os.path.lexists(link)]
    assert not [each for each in open_files if str(tmp_path) in each]


@pytest.mark.parametrize("manual", [True, False])
@pytest.mark.parametrize("interrupted", [True, False])
def test_a_second_close_waits_for_the_first_one(
    nodes: Nodes,
    open_embedded: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: bool,
    manual: bool,
) -> None:
    """The folder stays in use until its last write; a close that Ctrl-C met goes on, too."""
    broker = open_embedded(tmp_path / "f", clock=clock(manual=manual))
    broker.send("t", "x")
    engine = nodes[0].engine
    writing, go_on, close = threading.Event(), threading.Event(), engine.close

    def slow() -> None:
        writing.set()
        go_on.wait(30)
        close()

    monkeypatch.setattr(engine, "close", slow)
    with ThreadPoolExecutor(2) as threads:
        closing = []
        if interrupted:
            with ctrl_c_once(writing):
                broker.close()
        else:
            closing.append(threads.submit(broker.close))
            assert writing.wait(30)
        closing.append(threads.submit(broker.close))
        with pytest.raises(TimeoutError):
            closing[-1].result(0.1)
        with pytest.raises(ConfigError, match="in use by this very process"):
            delaylog.open(tmp_path / "f")
        go_on.set()
        for each in closing:
            each.result(30)
    delaylog.open(tmp_path / "f").close()


def test_ctrl_c_while_close_waits_for_a_move_of_the_clock(
    broker: EmbeddedBroker[ManualClock], tmp_path: Path
) -> None:
    """The broker stays open and the folder locked, and a later close closes it."""
    with broker.clock._moving, ctrl_c_once(begun(broker.clock, "detach")):
        broker.close()
    broker.send("t", "still open")
    with pytest.raises(ConfigError, match="in use by process"):
        lock_folder(str(tmp_path / "broker0"))
    assert ended(broker.close) is None


def begun(owner: Any, name: str) -> threading.Event:
    """Set when this method is called."""
    called, method = threading.Event(), getattr(owner, name)

    def noted(*how: Any) -> Any:
        called.set()
        return method(*how)

    setattr(owner, name, noted)
    return called


@pytest.mark.parametrize("manual", [True, False])
def test_what_ends_a_thread_ends_the_calls_and_frees_the_folder(
    nodes: Nodes, open_embedded: Any, tmp_path: Path, manual: bool
) -> None:
    """Such as SystemExit: those who wait are told, as those who come later."""
    broker = open_embedded(tmp_path / "f", clock=clock(manual=manual))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(broker.receive, "t", wait=timedelta(minutes=1))
        await_that(lambda: len(nodes[0].waiters) == 1)
        broker._thread._call_soon(sys.exit, 1)
        assert isinstance(waiting.exception(30), ClosedError)
    assert isinstance(ended(lambda: broker.send("t", "x")), ClosedError)
    assert ended(broker.close) is None
    open_embedded(tmp_path / "f")


def test_close_gives_back_what_a_receive_has_leased_and_nobody_got(
    open_embedded: Any, tmp_path: Path
) -> None:
    """Under a manual clock an answer is told a moment later, and the close may come first."""
    broker = open_embedded(tmp_path / "f", clock=ManualClock())
    broker.send("t", "x")
    thread = broker._thread
    closing = threading.Thread(target=broker.close)

    def close_first() -> bool:
        if thread._answered:
            thread._loop.on_idle = idle
            closing.start()
            await_that(lambda: thread.closed)
        return True

    idle, thread._loop.on_idle = thread._loop.on_idle, close_first
    assert isinstance(ended(lambda: broker.receive("t")), ClosedError)
    closing.join(30)
    again = open_embedded(tmp_path / "f", clock=ManualClock())
    assert (again.stats("t").counts.ready, again.stats("t").counts.leased) == (1, 0)


def test_what_a_closed_event_loop_cannot_be_told_is_given_back(
    nodes: Nodes, open_embedded: Any
) -> None:
    broker = open_embedded()
    steps = broker._calls.receive(*Wanted.split("t", {"wait": timedelta(seconds=20)}))
    gone = asyncio.new_event_loop()
    waiting = gone.create_task(broker._thread.wait(steps, give_back=broker._calls.give_back))
    gone.run_until_complete(asyncio.sleep(0.01))
    await_that(lambda: len(nodes[0].waiters) == 1)
    gone.close()
    broker.send("t", "x")
    (message,) = broker.receive("t", wait=timedelta(seconds=5))
    assert (message.attempts, waiting.done()) == (1, False)


@pytest.mark.parametrize("manual", [True, False])
def test_a_call_that_the_node_itself_cancels_is_told(open_embedded: Any, manual: bool) -> None:
    broker = open_embedded(clock=clock(manual=manual))

    async def cancelled() -> None:
        raise asyncio.CancelledError

    assert isinstance(ended(lambda: broker._thread.run(cancelled())), ClosedError)
    broker.send("t", "it goes on")


BY_A_THREAD = "threading.Thread(target=work).start()"
BY_ATEXIT = "atexit.register(work)"
BY_A_LOOP = "threading.Thread(target=asyncio.run, args=[on_a_loop()]).start()"
AFTER_MAIN = """
import asyncio, atexit, sys, threading, time
import delaylog.broker.embedded
from delaylog.broker.engine.upkeep import checkpoints

folder = sys.argv[1]
checkpoints.CHECKPOINT_BYTES = 50_000

def main_ended():
    while threading.main_thread().is_alive():
        time.sleep(0.01)

def work():
    main_ended()
    upkeep = broker._thread.engine.upkeep
    while upkeep.checkpoints < 1:
        broker.send("t", b"x" * 20_000)
    broker.close()
    print("closed", upkeep.checkpoints > 1)

async def on_a_loop():
    async with delaylog.open_async(folder) as broker:
        main_ended()
        await broker.send("t", "x")
        upkeep = broker._thread.engine.upkeep
    print("closed", upkeep.checkpoints > 0)
"""


@pytest.mark.parametrize("how", [BY_A_THREAD, BY_ATEXIT, BY_A_LOOP])
def test_a_broker_works_on_once_the_main_thread_has_ended(tmp_path: Path, how: str) -> None:
    """It takes checkpoints, as due and at its end."""
    opened = "" if how == BY_A_LOOP else "broker = delaylog.open(folder)\n"
    run = subprocess.run(
        [sys.executable, "-c", f"{AFTER_MAIN}\n{opened}{how}", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("closed True\n", "", 0)
