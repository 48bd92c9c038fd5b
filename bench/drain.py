"""Draining what is due: receive in bulk, ack the whole lease, until nothing is left.

Two cases: messages that were due when they were sent, all alike; and messages whose due times lie
in random order over a window that has passed, with bodies of many sizes, which is what a consumer
finds after a pause. The clock stops with the last ack.
"""

from __future__ import annotations

import time

import numpy as np
from broker_process import Brokers
from clients import Consumer
from load import Driver, LoadError
from sending import Stopwatch, Timed, fill
from settings import BODY_BYTES, DRAIN_BATCH, DRAIN_LANES, FILL_BATCH, Settings
from tables import (
    Column,
    Table,
    at_least,
    mebibytes,
    median,
    microseconds,
    rate,
    span,
)
from wire import uneven_template
from workers import run_apart

UNEVEN_BYTES = (20, 400)
GIVE_UP_S = 180.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Both cases, each with one fill and several drained topics."""
    table = Table(
        f"drain: receive + ack, up to {DRAIN_BATCH:,} a call, {DRAIN_LANES} connections, "
        f"{settings.drain_messages:,} messages, median of {settings.drain_runs}",
        [
            Column("messages/s", "rate", rate),
            Column("least - most", "span", span),
            Column("server CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    for case, window_s in (
        (f"due at once, {BODY_BYTES} B", 0.0),
        (
            f"random over {settings.drain_window_s:.0f} s, {UNEVEN_BYTES[0]}-{UNEVEN_BYTES[1]} B",
            settings.drain_window_s,
        ),
    ):
        figures, reached = _one_case(brokers, settings, window_s)
        targets = [] if window_s else [at_least(reached, 400e3, "400 k/s")]
        table.add(case, figures, targets)
    return table


def drain(
    port: int,
    server_id: int,
    topic: str,
    messages: int,
    give_up_s: float = GIVE_UP_S,
    **members: object,
) -> Timed:
    """Receive (with more members, if any) and ack that many messages; every one exactly once."""
    consumer = Consumer(
        topic,
        target=messages,
        rows_max=DRAIN_BATCH,
        wait_ms=1_000,
        until=time.time() + give_up_s,
        **members,
    )
    with Driver(port, DRAIN_LANES) as driver:
        watch = Stopwatch(server_id)
        driver.run(consumer)
        # A lane may still have been waiting for more when the last ack came.
        timed = watch.read(consumer.acked, ended=consumer.last_ack_at)
    refs, _, _ = consumer.columns()
    if len(np.unique(refs)) != messages or consumer.acked != messages:
        raise LoadError(
            f"of {messages} messages {consumer.acked} were acked, {len(np.unique(refs))} differ"
        )
    return timed


def _one_case(
    brokers: Brokers, settings: Settings, window_s: float
) -> tuple[dict[str, object], float]:
    topics = [f"drain-{number}" for number in range(settings.drain_runs)]
    with brokers.fresh() as broker:
        begun_ms = int(time.time() * 1000)
        # Far enough off that nothing is due before the fill has ended, on a slow day too.
        first_ms = begun_ms + (2_000 if window_s else 0)
        for number, topic in enumerate(topics):
            random = np.random.default_rng(number)
            high = first_ms + max(1, int(window_s * 1000))
            dues = random.integers(first_ms, high, settings.drain_messages)
            template = uneven_template(topic, FILL_BATCH, *UNEVEN_BYTES, seed=number)
            run_apart(fill, broker.port, topic, dues, template=template if window_s else None)
        time.sleep(max(0.0, first_ms / 1000 + window_s + 0.5 - time.time()))
        broker.settle(limit_s=2.0)
        runs: list[Timed] = [
            run_apart(drain, broker.port, broker.process_id, topic, settings.drain_messages).value
            for topic in topics
        ]
        resident = broker.resident()
    figures = _figures(runs)
    figures |= {"rss": resident.total, "rss_peak": resident.peak}
    return figures, median([run.rate for run in runs])


def _figures(runs: list[Timed]) -> dict[str, object]:
    rates = sorted(run.rate for run in runs)
    return {
        "rate": median(rates),
        "span": [rates[0], rates[-1]] if len(rates) > 1 else None,
        "server_us": median([run.server_us for run in runs]),
        "client_us": median([run.client_us for run in runs]),
    }
