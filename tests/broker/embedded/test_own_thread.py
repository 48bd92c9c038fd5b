"""Code of the program where it meets the node: signal handlers, logging handlers, finalisers."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delaylog.broker.embedded import ClosedError, EmbeddedBroker, ManualClock
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.client.errors import NotReady
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files.os_file_system import OsFile
from tests.waiting import await_that

Nodes = list[EmbeddedNode]


class Called(Exception):
    """What a test's signal handler raises."""


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt, Called])
def test_a_receive_that_a_signal_handler_ends_has_taken_nothing(
    nodes: Nodes, open_embedded: Any, error: type[BaseException]
) -> None:
    """Whatever it raises, also what a time limit of the broker does."""
    broker = open_embedded()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        # Not before it waits: elsewhere the error would be the test's.
        await_that(lambda: len(nodes[0].waiters) == 1)
        signal.pthread_kill(main, signal.SIGALRM)

    def handler(*_: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(error):
            broker.receive("t", wait=timedelta(seconds=60))
    finally:
        interrupting.join()
        signal.signal(signal.SIGALRM, before)
    broker.send("t", "x")
    assert [message.text for message in broker.receive("t", wait=timedelta(seconds=5))] == ["x"]


CALLS: list[Callable[[EmbeddedBroker[Any]], Any]] = [
    lambda broker: broker.send("t", "x", wait=False),
    lambda broker: broker.receive("t"),
    lambda broker: broker.close(),
]


@pytest.mark.parametrize("manual", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_the_broker_s_own_thread_is_refused(
    open_embedded: Any, call: Callable[[EmbeddedBroker[Any]], Any], manual: bool
) -> None:
    """It would wait for itself, and everybody else for it."""
    broker = open_embedded(clock=ManualClock() if manual else None)
    raised: list[BaseException] = []

    def on_its_thread() -> None:
        try:
            call(broker)
        except RuntimeError as error:
            raised.append(error)

    broker._thread._call_soon(on_its_thread)
    (error,) = await_that(lambda: raised)
    assert "the broker's own thread" in str(error)
    broker.send("t", "it goes on")


def test_a_logging_handler_may_call_the_broker_that_fails(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls under way are told before the handler can do harm."""
    broker = open_embedded()
    met: list[BaseException] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                broker.send("logs", record.getMessage(), wait=False)
            except BaseException as error:
                met.append(error)
                raise

    def broken(*_: Any) -> int:
        raise DiskFailedError("EIO")

    handler = Handler()
    monkeypatch.setattr(OsFile, "pwritev", broken)
    logging.getLogger("delaylog").addHandler(handler)
    try:
        with pytest.raises((NotReady, ClosedError)):
            broker.send("t", "x")
        await_that(lambda: met)
    finally:
        logging.getLogger("delaylog").removeHandler(handler)
    assert isinstance(met[0], ClosedError)


def test_a_finaliser_may_call_while_its_own_thread_hands_a_call_over(open_embedded: Any) -> None:
    """The garbage collector runs at any time, and so do signal handlers."""
    broker = open_embedded()

    def meanwhile() -> None:
        with broker._thread._handing_over:
            broker.send("t", "x", wait=False)

    thread = threading.Thread(target=meanwhile, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for itself"
