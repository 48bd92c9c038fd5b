"""Streams: what one subscriber gets over a WebSocket, and how late, beside long polls.

The subscriber acks each frame of deliveries as a whole and gives as much credit as it took. In the
rows of the SDK it is `subscribe` of AsyncClient, with a `begin` and an ack for each message, and
100 acks in progress.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import aiohttp
import msgpack
import numpy as np
from broker_process import Brokers
from lateness import (
    COLUMNS,
    GRACE_S,
    LEAD_MS,
    SPREAD_MS,
    WARM_UP_S,
    Received,
    consume,
    lateness_figures,
    produce,
)
from load import LoadError
from sending import Stopwatch, Timed, fill
from settings import BODY_BYTES, DRAIN_BATCH, LATENESS_RATES, Settings
from tables import Column, Table, at_least, at_most, median, microseconds, rate, span
from workers import Worker, run_apart

from delaylog.client import AsyncClient
from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.subscriptions import AsyncSubscribing
from delaylog.client.wire.bulk import received, rows_in

CREDIT: Final = 20_000
BYTES: Final = 8 << 20
SDK_MESSAGES: Final = 5_000
ACKS: Final = 100
"""Acks of the SDK in progress: each waits for the sync of the log."""
LANES: Final = 1


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Rates to one subscriber, by form."""
    messages = settings.drain_messages
    table = Table(
        f"streams: {BODY_BYTES}-byte messages to one subscriber, each frame acked, "
        f"{messages:,} messages ({SDK_MESSAGES:,} of the SDK), median of {settings.drain_runs}",
        [
            Column("messages/s", "rate", rate),
            Column("least - most", "span", span),
            Column("server CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
        ],
    )
    for form in ("bulk", "msgpack", "json"):
        runs = _runs(brokers, settings, messages, lambda *given, form=form: drained(*given, form))
        targets = [at_least(median([run.rate for run in runs]), 150e3, "150 k/s")]
        table.add(f"WebSocket, {form}", _figures(runs), targets if form == "bulk" else [])
    for case, streamed in (("SDK, stream", True), ("SDK, long polls", False)):
        runs = _runs(
            brokers,
            settings,
            SDK_MESSAGES,
            lambda *given, streamed=streamed: subscribed(*given, streamed=streamed),
        )
        table.add(f"{case}, max=1000", _figures(runs))
    return table


def _runs(
    brokers: Brokers, settings: Settings, messages: int, drain: Callable[..., Timed]
) -> list[Timed]:
    topics = [f"stream-{number}" for number in range(settings.drain_runs)]
    with brokers.fresh() as broker:
        now_ms = int(time.time() * 1000)
        for topic in topics:
            run_apart(fill, broker.port, topic, np.full(messages, now_ms))
        broker.settle(limit_s=2.0)
        return [
            Worker(drain, broker.port, broker.process_id, topic, messages).result().value
            for topic in topics
        ]


def _figures(runs: list[Timed]) -> dict[str, object]:
    rates = [run.rate for run in runs]
    return {
        "rate": median(rates),
        "span": (min(rates), max(rates)),
        "server_us": median([run.server_us for run in runs]),
        "client_us": median([run.client_us for run in runs]),
    }


def drained(port: int, server_id: int, topic: str, messages: int, form: str) -> Timed:
    """Take this many messages from a stream, and ack them."""
    watch = Stopwatch(server_id)
    got = asyncio.run(_stream(port, topic, form, _stop_at(messages)))
    if got != messages:
        raise LoadError(f"{got} of {messages} messages came")
    return watch.read(messages)


def _stop_at(messages: int) -> Callable[[int], bool]:
    return lambda got: got >= messages


async def _stream(
    port: int,
    topic: str,
    form: str,
    is_enough: Callable[[int], bool],
    note: Callable[[dict[str, Any]], None] = lambda fields: None,
) -> int:
    """Read a stream and ack its frames until `is_enough` of their messages, and all are settled."""
    load = json.loads if form == "json" else msgpack.unpackb
    path = f"/v1/topics/{topic}/groups/default/stream?form={form}&messages={CREDIT}&bytes={BYTES}"
    got = frames = settled = 0
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.ws_connect(path, max_msg_size=0) as socket,
    ):
        while not is_enough(got) or settled < frames:
            try:
                message = await socket.receive(timeout=1.0)
            except TimeoutError:
                continue
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                raise LoadError(f"the stream ended: {message.data} {message.extra}")
            fields = load(message.data)
            settled = fields.get("settled", settled)
            if "bodies" in fields:
                note(fields)
                n = received(fields, rows_in(fields)).n
                ack = {"lease": fields["lease"], "all": True}
            elif "messages" in fields:
                n = len(fields["messages"])
                ack = {"receipts": [each["receipt"] for each in fields["messages"]]}
            else:
                continue
            got += n
            frames += 1
            await socket.send_bytes(msgpack.packb({"ack": ack}))
            given = {"messages": n, "bytes": fields["bytes"]}
            await socket.send_bytes(msgpack.packb({"credit": given}))
    return got


def subscribed(port: int, server_id: int, topic: str, messages: int, *, streamed: bool) -> Timed:
    """Handle this many messages of the SDK's loop, each with an ack."""
    if not streamed:
        AsyncClient._deliveries = AsyncSubscribing._deliveries  # type: ignore[method-assign]
    watch = Stopwatch(server_id)

    async def handle() -> None:
        left = messages
        places = asyncio.Semaphore(ACKS)

        async def ack(message: AsyncMessage) -> None:
            await message.ack()
            places.release()

        async with AsyncClient(f"http://127.0.0.1:{port}") as client, asyncio.TaskGroup() as acks:
            async for message in client.subscribe(topic, max=1_000):
                await places.acquire()
                acks.create_task(ack(message))
                left -= 1
                if not left:
                    break

    asyncio.run(handle())
    return watch.read(messages)


# --------------------------------------------------------------------------- lateness


def lateness(brokers: Brokers, settings: Settings) -> Table:
    """The same load received by one stream and by one long-polling connection."""
    table = Table(
        f"lateness of one consumer: open loop, {settings.lateness_s:.0f} s, by a stream and by "
        "long polls",
        COLUMNS,
    )
    ways: dict[str, Callable[..., Received]] = {"stream": consume_stream, "long polls": consume}
    for per_second in LATENESS_RATES:
        for way, take in ways.items():
            with brokers.fresh() as broker:
                _run(broker.port, 500, WARM_UP_S, "warm-up", take)
                before_s, began = broker.cpu_seconds(), time.monotonic()
                sent, came = _run(broker.port, per_second, settings.lateness_s, "late", take)
                cpu_s, wall_s = broker.cpu_seconds() - before_s, time.monotonic() - began
            figures = lateness_figures(came, sent)
            figures |= {"core": cpu_s / wall_s, "server_us": cpu_s / sent * 1e6}
            targets = [at_most(figures["early"], 0, "0 early")]
            table.add(f"{per_second:,}/s, {way}", figures, targets)
    return table


def _run(
    port: int, per_second: int, seconds: float, topic: str, take: Callable[..., Received]
) -> tuple[int, Received]:
    start = time.time() + 0.3
    expected = int(per_second * seconds)
    until = start + seconds + (LEAD_MS + SPREAD_MS) / 1000 + GRACE_S
    consumer = Worker(
        take, port, topic, expected=expected, until=until, lanes=LANES, rows_max=DRAIN_BATCH
    )
    try:
        produced = run_apart(produce, port, topic, per_second, expected, start).value
        return produced.sent, consumer.result().value
    finally:
        consumer.kill()


def consume_stream(
    port: int, topic: str, *, expected: int, until: float, lanes: int, rows_max: int
) -> Received:
    """As `lateness.consume`, by one stream."""
    del lanes, rows_max
    refs: list[np.ndarray[Any, Any]] = []
    dues: list[np.ndarray[Any, Any]] = []
    at_ms: list[np.ndarray[Any, Any]] = []

    def note(fields: dict[str, Any]) -> None:
        now_ms, n = time.time() * 1000, fields["n"]
        due = fields["deliver_at_ms"]
        refs.append(np.frombuffer(fields["refs"], "<i8"))
        dues.append(np.full(n, due) if isinstance(due, int) else np.frombuffer(due, "<i8"))
        at_ms.append(np.full(n, now_ms))

    work: Coroutine[Any, Any, int] = _stream(
        port, topic, "bulk", lambda got: got >= expected or time.time() > until, note
    )
    asyncio.run(work)
    return Received(*(np.concatenate(column) for column in (refs, dues, at_ms)))
