"""One client that many threads use at once, and that one of them closes; embedded brokers too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.broker.embedded import ClosedError
from delaylog.client import Client, ClientError
from tests.waiting import await_that

THREADS = 30
EACH = 6


@pytest.fixture(params=["client", "lingering", "few connections", "embedded"])
def client(
    request: pytest.FixtureRequest, two_brokers: tuple[str, str], tmp_path: Path
) -> Iterator[Any]:
    made: dict[str, Callable[[], Any]] = {
        "client": lambda: Client(two_brokers[0]),
        "lingering": lambda: Client(two_brokers[0], linger=timedelta(milliseconds=2)),
        "few connections": lambda: Client(two_brokers[0], connections_max=2),
        "embedded": lambda: delaylog.open(tmp_path / "f", fsync="never"),
    }
    with made[request.param]() as opened:
        yield opened


def in_threads(acts: list[Callable[[], Any]]) -> list[BaseException]:
    """Do each in a thread of its own. Returns what they raised."""
    raised: list[BaseException] = []

    def run(act: Callable[[], Any]) -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_each_thread_gets_its_own_answers(client: Any, topic: str) -> None:
    acked: list[str] = []

    def work(thread: int) -> None:
        for number in range(EACH):
            name = f"{thread}.{number}"
            sent = client.send(topic, name, id=name)
            assert (sent.id, sent.result) == (name, "created")
            assert client.get(topic, name).id == name
            for message in client.receive(topic, max=2, wait=timedelta(milliseconds=20)):
                assert message.text == message.id
                assert message.ack() == "done"
                acked.append(message.text)

    assert in_threads([lambda thread=thread: work(thread) for thread in range(THREADS)]) == []
    while messages := client.receive(topic, max=100):
        assert set(client.ack(messages)) == {"done"}
        acked += [message.text for message in messages]
    assert sorted(acked) == sorted(f"{t}.{n}" for t in range(THREADS) for n in range(EACH))


def test_a_close_ends_the_calls_of_all_threads(client: Any, topic: str) -> None:
    """Each returns or raises an error that says so, and no thread of the client is left."""
    threads_before = threading.active_count()
    loops_ended: list[None] = []

    def forever(act: Callable[[], Any]) -> None:
        while True:
            act()

    def loop() -> None:
        for message in client.subscribe(f"{topic}-loop"):
            message.ack()
        loops_ended.append(None)

    def close() -> None:
        time.sleep(0.3)
        client.close()

    acts: list[Callable[[], Any]] = [
        loop,
        lambda: forever(lambda: client.receive(f"{topic}-none", wait=timedelta(seconds=30))),
        lambda: forever(lambda: client.send(topic, "x")),
        lambda: forever(lambda: client.send_soon(topic, "x").result(timedelta(seconds=30))),
        lambda: forever(lambda: client.ack(client.receive(topic, max=5))),
    ]
    began_s = time.monotonic()
    raised = in_threads([*acts * 3, close])
    assert time.monotonic() - began_s < 20
    assert len(loops_ended) == 3
    assert len(raised) == 3 * 4
    assert all(isinstance(error, (ClientError, ClosedError)) for error in raised), raised
    await_that(lambda: threading.active_count() <= threads_before)
