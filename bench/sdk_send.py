"""Single sends through the client library: awaited by many tasks, in a loop, by threads, at once.

The program under test is one process, as a user's would be, beside a broker that syncs every
answer. Sends that go at once take turns with bare http.client round trips of the same kind of body.
The one rule: a figure counts only messages that the broker has answered.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import uvloop
from broker_process import Brokers, ServerProcess
from settings import BODY_BYTES, SDK_TASKS, Settings
from tables import Column, Table, at_least, at_most, median, microseconds, rate, span, times
from wire import BULK_TYPE
from workers import run_apart

from delaylog.client import AsyncClient, Client
from delaylog.client.wire.bulk import encode_send

BODY: Final = b"x" * BODY_BYTES
# Due after the bench: what is measured is sending.
FAR: Final = timedelta(days=30)
SENDS_A_FLUSH: Final = 50_000
TARGET_RATE: Final = 150_000
TARGET_RATIO: Final = 1.3
# Calls of a block, of which blocks of both ways take turns.
BLOCK_CALLS: Final = 50


@dataclass(frozen=True, slots=True)
class Timed:
    """One run in the process under test."""

    messages: int
    seconds: float
    cpu_s: float


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Each way in turns, several rounds on one broker."""
    table = Table(
        f"sdk sends: {BODY_BYTES} B bodies, one process, fsync always, median of "
        f"{settings.sdk_rounds} rounds",
        [
            Column("messages/s", "rate", rate),
            Column("least - most", "span", span),
            Column("client CPU us", "client_us", microseconds),
            Column("server CPU us", "server_us", microseconds),
            Column("p50 us", "p50_us", microseconds),
            Column("of bare", "ratio", times),
        ],
    )
    ways: dict[str, tuple[Callable[[int, int], Timed], int]] = {
        **{_awaiting_name(tasks): (_awaiting(tasks), settings.sdk_messages) for tasks in SDK_TASKS},
        "loop of client.send_soon(), room()": (_in_a_loop, settings.sdk_messages),
        f"loop of client.send_soon(), flush() every {SENDS_A_FLUSH:,}": (
            _flushing,
            settings.sdk_messages,
        ),
        "Client.send_soon() in one thread, flush()": (_soon, settings.sdk_messages),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    direct: list[tuple[list[float], list[float]]] = []
    with brokers.fresh() as broker:
        for _ in range(settings.sdk_rounds):
            for name, (way, messages) in ways.items():
                rounds[name].append(_figures(broker, way, messages))
            direct.append(
                run_apart(at_once_beside_bare, broker.port, settings.sdk_direct_calls).value
            )
            broker.settle(limit_s=settings.settle_s)
    for name, figures in rounds.items():
        rates = sorted(figure["rate"] for figure in figures)
        middle = {key: median([figure[key] for figure in figures]) for key in figures[0]}
        # A few hundred tasks that wait for each answer are bound by the sync, not by the client.
        judged = name != _awaiting_name(SDK_TASKS[0])
        table.add(
            name,
            {**middle, "span": [rates[0], rates[-1]]},
            [at_least(middle["rate"], TARGET_RATE, "150 k/s")] if judged else [],
        )
    _add_direct(table, direct)
    return table


def _add_direct(table: Table, rounds: list[tuple[list[float], list[float]]]) -> None:
    mine = [statistics.median(ours) for ours, _ in rounds]
    bare = [statistics.median(theirs) for _, theirs in rounds]
    ratio = median([a / b for a, b in zip(mine, bare, strict=True)])
    floor = median(bare)
    table.add("bare http.client round trip", {"rate": 1 / floor, "p50_us": 1e6 * floor})
    table.add(
        "Client.send() without linger",
        {"rate": 1 / median(mine), "p50_us": 1e6 * median(mine), "ratio": ratio},
        [at_most(ratio, TARGET_RATIO, "1.3 of bare")],
    )


def _figures(
    broker: ServerProcess, way: Callable[[int, int], Timed], messages: int
) -> dict[str, float]:
    before_s = broker.cpu_seconds()
    timed: Timed = run_apart(way, broker.port, messages).value
    server_s = broker.cpu_seconds() - before_s
    return {
        "rate": timed.messages / timed.seconds,
        "client_us": 1e6 * timed.cpu_s / timed.messages,
        "server_us": 1e6 * server_s / timed.messages,
    }


def _awaiting_name(tasks: int) -> str:
    return f"await client.send() in {tasks:,} tasks"


def _awaiting(tasks: int) -> Callable[[int, int], Timed]:
    def way(port: int, messages: int) -> Timed:
        async def body(client: AsyncClient, n: int) -> None:
            async def one() -> None:
                for _ in range(n // tasks):
                    await client.send("await", BODY, delay=FAR)

            await asyncio.gather(*(one() for _ in range(tasks)))

        return _timed_async(port, messages // tasks * tasks, body)

    return way


def _in_a_loop(port: int, messages: int) -> Timed:
    async def body(client: AsyncClient, n: int) -> None:
        for _ in range(n):
            client.send_soon("loop", BODY, delay=FAR)
            await client.room()
        await client.flush()

    return _timed_async(port, messages, body)


def _flushing(port: int, messages: int) -> Timed:
    async def body(client: AsyncClient, n: int) -> None:
        for sent in range(1, n + 1):
            client.send_soon("flush", BODY, delay=FAR)
            if sent % SENDS_A_FLUSH == 0:
                await client.flush()
        await client.flush()

    return _timed_async(port, messages, body)


def _timed_async(
    port: int, messages: int, body: Callable[[AsyncClient, int], Awaitable[None]]
) -> Timed:
    async def run() -> Timed:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            # Connections, first tasks and first pages are not what is measured.
            await body(client, messages // 20)
            cpu_s, began = time.process_time(), time.perf_counter()
            await body(client, messages)
            return Timed(messages, time.perf_counter() - began, time.process_time() - cpu_s)

    return uvloop.run(run())


def _soon(port: int, messages: int) -> Timed:
    with Client(f"http://127.0.0.1:{port}") as client:

        def body(n: int) -> None:
            for _ in range(n):
                client.send_soon("soon", BODY, delay=FAR)
            client.flush()

        body(messages // 20)
        cpu_s, began = time.process_time(), time.perf_counter()
        body(messages)
        return Timed(messages, time.perf_counter() - began, time.process_time() - cpu_s)


def at_once_beside_bare(port: int, calls: int) -> tuple[list[float], list[float]]:
    """Seconds of each `Client.send()`, and of each bare round trip, in turns block by block."""
    bare = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": BULK_TYPE, "Accept": BULK_TYPE}
    producer, sequence = uuid.uuid4().hex, 0

    def bare_call() -> None:
        nonlocal sequence
        sequence += 1
        wire = encode_send([BODY], delay=FAR, producer=producer, sequence=sequence)
        bare.request("POST", "/v1/topics/direct/messages", wire, headers)
        response = bare.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"the broker answered {response.status}")

    ours: list[float] = []
    theirs: list[float] = []
    with Client(f"http://127.0.0.1:{port}") as client:

        def call() -> None:
            client.send("direct", BODY, delay=FAR)

        for warm in (call, bare_call):
            _block(warm, [])
        for _ in range(calls // BLOCK_CALLS):
            _block(call, ours)
            _block(bare_call, theirs)
    bare.close()
    return ours, theirs


def _block(call: Callable[[], Any], into: list[float]) -> None:
    for _ in range(BLOCK_CALLS):
        began = time.perf_counter()
        call()
        into.append(time.perf_counter() - began)
