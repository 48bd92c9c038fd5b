"""How late messages arrive: from their due time to the consumer's hands, on one wall clock.

The producer is open-loop: what it sends follows the clock and never waits for the broker's mood,
so a slow broker cannot make the load lighter. A receipt is stamped when the whole answer is in the
consumer's memory. Early means before the due millisecond; one early message is a fault.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from broker_process import Brokers
from clients import Consumer, Int64Array
from load import Driver, LoadError
from settings import BODY_BYTES, DRAIN_BATCH, LATENESS_LANES, LATENESS_RATES, Settings
from tables import Column, Table, at_most, microseconds, milliseconds, percent, whole
from wire import BULK_TYPE, even_template, unpack
from workers import Worker, run_apart

TICK_S: Final = 0.010
# A message is sent this long before it is due: an even second plus up to this much.
LEAD_MS: Final = 1_000
SPREAD_MS: Final = 1_000
# How long the consumers go on after the last due time before a message counts as missing.
GRACE_S: Final = 5.0
WARM_UP_S: Final = 2.0

COLUMNS: Final = [
    Column("received", "received", whole),
    Column("p50 ms", "p50_ms", milliseconds),
    Column("p99 ms", "p99_ms", milliseconds),
    Column("p99.9 ms", "p999_ms", milliseconds),
    Column("max ms", "max_ms", milliseconds),
    Column("early", "early", whole),
    Column("missing", "missing", whole),
    Column("twice", "twice", whole),
    Column("core used", "core", percent),
    Column("server CPU us", "server_us", microseconds),
]


@dataclass(frozen=True, slots=True)
class Produced:
    """What the producer did: how much, and how far behind its own schedule it fell at most."""

    sent: int
    lag_ms: float
    answer_ms: float


@dataclass(frozen=True, slots=True)
class Received:
    """Refs, due times and receipt times in ms, of one consumer process."""

    refs: Int64Array
    dues: Int64Array
    at_ms: npt.NDArray[np.float64]


def measure(brokers: Brokers, settings: Settings) -> Table:
    """One row a rate, a fresh broker each."""
    table = Table(
        f"lateness: open loop, bulk sends every {TICK_S * 1000:.0f} ms due "
        f"{LEAD_MS / 1000:g}-{(LEAD_MS + SPREAD_MS) / 1000:g} s later, "
        f"{LATENESS_LANES} long-polling connections, {settings.lateness_s:.0f} s",
        COLUMNS,
    )
    for per_second in LATENESS_RATES:
        with brokers.fresh() as broker:
            # A few seconds of light load first: imports, first files, first hour.
            produce_and_receive(broker.port, 500, WARM_UP_S, topic="warm-up")
            before_s, began = broker.cpu_seconds(), time.monotonic()
            produced, received = produce_and_receive(
                broker.port, per_second, settings.lateness_s, topic="late"
            )
            cpu_s, wall_s = broker.cpu_seconds() - before_s, time.monotonic() - began
        figures = lateness_figures(received, produced.sent)
        figures |= {
            "core": cpu_s / wall_s,
            "server_us": cpu_s / produced.sent * 1e6,
            "producer_lag_ms": produced.lag_ms,
            "answer_ms": produced.answer_ms,
        }
        targets = [at_most(figures["early"], 0, "0 early")]
        if per_second == max(LATENESS_RATES):
            targets.insert(0, at_most(figures["p99_ms"], 5.0, "5 ms p99"))
        table.add(f"{per_second:,} messages/s", figures, targets)
        table.notes.append(
            f"{per_second:,}/s: the producer fell behind its schedule by {produced.lag_ms:.0f} ms "
            f"at most; the slowest send was answered in {produced.answer_ms:.0f} ms."
        )
    return table


def lateness_figures(received: Received, sent: int) -> dict[str, float]:
    """Quantiles of receipt minus due time over everything received."""
    late_ms = received.at_ms - received.dues
    different = len(np.unique(received.refs))
    figures: dict[str, float] = {
        "received": len(late_ms),
        "missing": sent - different,
        "twice": len(late_ms) - different,
        "early": int((late_ms < 0).sum()),
    }
    if len(late_ms):
        p50, p99, p999 = np.percentile(late_ms, (50, 99, 99.9))
        figures |= {
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "p999_ms": float(p999),
            "max_ms": float(late_ms.max()),
        }
    return figures


def consume(
    port: int, topic: str, *, expected: int, until: float, lanes: int, rows_max: int = DRAIN_BATCH
) -> Received:
    """Long-poll, receive and ack until `expected` messages have come or the wall clock says so."""
    consumer = Consumer(topic, target=expected, rows_max=rows_max, wait_ms=500, until=until)
    with Driver(port, lanes) as driver:
        driver.run(consumer)
    return Received(*consumer.columns())


def produce_and_receive(
    port: int, per_second: int, seconds: float, *, topic: str
) -> tuple[Produced, Received]:
    """One run: an open-loop producer and a consumer, each a process of its own."""
    start = time.time() + 0.3
    expected = int(per_second * seconds)
    consumer = Worker(
        consume,
        port,
        topic,
        expected=expected,
        until=start + seconds + (LEAD_MS + SPREAD_MS) / 1000 + GRACE_S,
        lanes=LATENESS_LANES,
    )
    try:
        produced = run_apart(produce, port, topic, per_second, expected, start).value
        return produced, consumer.result().value
    finally:
        consumer.kill()


def produce(port: int, topic: str, per_second: int, total: int, start: float) -> Produced:
    """Send on schedule: at each tick all messages that the schedule says should be out by now."""
    random = np.random.default_rng(per_second)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": BULK_TYPE, "Accept": BULK_TYPE}
    path = f"/v1/topics/{topic}/messages"
    sent, lag_s, answer_s = 0, 0.0, 0.0
    tick = start
    while sent < total:
        time.sleep(max(0.0, tick - time.time()))
        now = time.time()
        lag_s = max(lag_s, now - tick)
        # After a stall the schedule has gone on: everything it missed goes out at once.
        tick += TICK_S * max(1, int((now - tick) / TICK_S))
        n = min(total, round((tick - start) * per_second)) - sent
        if n <= 0:
            tick += TICK_S
            continue
        lead_ms = LEAD_MS + random.integers(0, SPREAD_MS, n)
        dues = (int(tick * 1000) + lead_ms).astype("<i8").tobytes()
        template = even_template(topic, n, BODY_BYTES)
        begun = time.perf_counter()
        connection.request("POST", path, template.body(dues), headers)
        response = connection.getresponse()
        text = response.read()
        answer_s = max(answer_s, time.perf_counter() - begun)
        if not 200 <= response.status < 300 or unpack(text)["n"] != n:
            raise LoadError(f"send: {response.status} {text[:300]!r}")
        sent += n
    connection.close()
    return Produced(sent, lag_s * 1000, answer_s * 1000)
