"""A process that forks: the child has nothing to say to its parent's folder."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.embedded import ClosedError, ManualClock
from tests.waiting import await_that


def in_a_child(act: Any) -> int:
    """Exit status of a forked child that does this; 1 where it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("manual", [True, False])
def test_a_forked_child_is_refused_and_spoils_nothing(
    open_embedded: Any, tmp_path: Path, manual: bool
) -> None:
    """Two that append to one log would ruin what was answered."""
    folder = tmp_path / "f"
    broker = open_embedded(folder, clock=ManualClock() if manual else None)
    sent = [broker.send("t", f"before {n}").id for n in range(3)]

    def child() -> None:
        with pytest.raises(ClosedError, match="the process that opened it"):
            broker.send("t", "from the child")
        with pytest.raises(ClosedError, match="the process that opened it"):
            broker.receive("t")
        broker.close()

    assert in_a_child(child) == 0
    sent += [broker.send("t", f"after {n}").id for n in range(3)]
    broker.close()
    again = open_embedded(folder, clock=ManualClock())
    assert [message.id for message in again.browse("t")] == sent


def test_a_child_is_refused_whatever_threads_were_doing(nodes: Any, broker: Any) -> None:
    """A call that another thread had under way when the process was forked is not waited for."""

    def child() -> None:
        with pytest.raises(ClosedError, match="the process that opened it"):
            broker.send("t", "from the child")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.receive, "t", wait=timedelta(minutes=1))
        await_that(lambda: len(nodes[0].waiters) == 1)
        assert in_a_child(child) == 0
        broker.send("t", "the parent goes on")
        assert [message.text for message in waiting.result(20)] == ["the parent goes on"]


@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["known", "unknown"])
def test_a_child_that_lives_on_keeps_no_folder_locked(
    open_embedded: Any, tmp_path: Path, fork: Callable[[], int]
) -> None:
    """It has inherited the lock with the parent's descriptors, and may not have run yet: then it
    has closed them as little as a child of a fork that Python does not know of.
    """
    broker = open_embedded(tmp_path / "f")
    child = fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    try:
        broker.close()
        open_embedded(tmp_path / "f")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
