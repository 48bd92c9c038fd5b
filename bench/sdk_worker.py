"""What one worker process handles through the client library, beside bare receives and acks.

Each way is a process of its own beside a broker that syncs every answer. Messages are due before
the clock starts; it stops when the broker has answered the last ack. The one rule: every message is
handled once, or the run counts for nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import uvloop
from broker_process import Brokers
from drain import drain
from load import LoadError
from sending import Stopwatch, Timed, fill
from settings import BODY_BYTES, FILL_BATCH, Settings
from tables import Column, Table, at_least, median, microseconds, rate, span
from workers import run_apart

from delaylog.client import AsyncClient, Client, Message
from delaylog.client.hooks import Hooks

RUNS: Final = 3
GIVE_UP_S: Final = 120.0
TARGETS: Final = {
    "AsyncClient, 8 handlers": (100_000, "100 k/s"),
    "AsyncClient, 1 handler": (10_000, "10 k/s"),
    "Client, 8 threads": (10_000, "10 k/s"),
    "Client, 1 thread": (10_000, "10 k/s"),
}
# Threads hand the lock of the interpreter to one another for each message.
THREADS_SHARE: Final = 5


class Acked(Hooks):
    """Tells when the broker has answered so many acks."""

    def __init__(self, target: int, tell: Callable[[], Any]) -> None:
        self.count = 0
        self._target = target
        self._tell = tell

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:  # noqa: ARG002
        self.count += n if verb == "ack" else 0
        if self.count >= self._target:
            self._tell()


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Each way in turns, several rounds on one broker."""
    messages = settings.drain_messages
    table = Table(
        f"sdk workers: {BODY_BYTES} B bodies, one process, {messages:,} messages, for threads and "
        f"one handler {messages // THREADS_SHARE:,}, median of {RUNS}",
        [
            Column("handled/s", "rate", rate),
            Column("least - most", "span", span),
            Column("worker CPU us", "client_us", microseconds),
            Column("server CPU us", "server_us", microseconds),
        ],
    )
    ways: dict[str, tuple[Callable[..., Timed], int, tuple[int, ...]]] = {
        "bare receive + ack of columns": (drain, messages, ()),
        "AsyncClient, 8 handlers": (in_loop, messages, (8,)),
        "AsyncClient, 1 handler": (in_loop, messages // THREADS_SHARE, (1,)),
        "AsyncClient, 100 handlers": (in_loop, messages, (100,)),
        "AsyncClient, batches of 100": (in_batches, messages, ()),
        "Client, 8 threads": (in_threads, messages // THREADS_SHARE, (8,)),
        "Client, 1 thread": (in_threads, messages // THREADS_SHARE, (1,)),
    }
    runs: dict[str, list[Timed]] = {name: [] for name in ways}
    with brokers.fresh() as broker:
        for turn in range(RUNS):
            for number, (name, (way, count, more)) in enumerate(ways.items()):
                topic = f"worker-{turn}-{number}"
                dues = np.full(FILL_BATCH, int(time.time() * 1000), np.int64)
                run_apart(fill, broker.port, topic, dues, messages=count)
                broker.settle(limit_s=2.0)
                timed = run_apart(way, broker.port, broker.process_id, topic, count, *more)
                runs[name].append(timed.value)
    for name, timed_runs in runs.items():
        rates = sorted(run.rate for run in timed_runs)
        figures = {
            "rate": median(rates),
            "span": [rates[0], rates[-1]],
            "client_us": median([run.client_us for run in timed_runs]),
            "server_us": median([run.server_us for run in timed_runs]),
        }
        least, text = TARGETS.get(name, (0, ""))
        targets = [at_least(median(rates), least, text)] if least else []
        table.add(name, figures, targets)
    return table


def in_loop(port: int, server_id: int, topic: str, messages: int, concurrency: int) -> Timed:
    """Handlers that count, in an event loop."""
    handled = 0

    async def handle(message: Message) -> None:  # noqa: ARG001
        nonlocal handled
        handled += 1

    timed = uvloop.run(_loop(port, server_id, topic, messages, handle, concurrency=concurrency))
    return _checked(timed, handled, messages)


def in_batches(port: int, server_id: int, topic: str, messages: int) -> Timed:
    """The same with lists."""
    handled = 0

    async def handle(batch: list[Message]) -> None:
        nonlocal handled
        handled += len(batch)

    timed = uvloop.run(_loop(port, server_id, topic, messages, handle, batch_max=100))
    return _checked(timed, handled, messages)


def in_threads(port: int, server_id: int, topic: str, messages: int, concurrency: int) -> Timed:
    """Handlers that count, in threads."""
    lock, handled, over = threading.Lock(), 0, threading.Event()
    with Client(f"http://127.0.0.1:{port}", hooks=[Acked(messages, over.set)]) as client:

        @client.consumer(topic, concurrency=concurrency)
        def handle(message: Message) -> None:  # noqa: ARG001
            nonlocal handled
            with lock:
                handled += 1

        watch = Stopwatch(server_id)
        client.start()
        if not over.wait(GIVE_UP_S):
            raise LoadError(f"{handled} of {messages} messages were handled in {GIVE_UP_S:.0f} s")
        timed = watch.read(messages)
    return _checked(timed, handled, messages)


async def _loop(
    port: int, server_id: int, topic: str, messages: int, handle: Any, **members: Any
) -> Timed:
    over = asyncio.Event()
    url = f"http://127.0.0.1:{port}"
    async with AsyncClient(url, hooks=[Acked(messages, over.set)]) as client:
        client.consumer(topic, **members)(handle)
        watch = Stopwatch(server_id)
        await client.start()
        async with asyncio.timeout(GIVE_UP_S):
            await over.wait()
        return watch.read(messages)


def _checked(timed: Timed, handled: int, messages: int) -> Timed:
    if handled != messages:
        raise LoadError(f"{messages} messages were handled {handled} times")
    return timed
