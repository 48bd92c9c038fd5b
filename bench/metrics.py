"""What metrics cost: counting beside the calls that it is counted in, and a scrape.

The broker itself measures what counting takes (counted_broker.py), which is held against the rest
of its loop's processor time, turn by turn. A broker that counts in one turn and not in the next
differs by 10 to 30 % on a machine that others share, which hides a cost of 2 %.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from tempfile import NamedTemporaryFile
from typing import Any, Final

import counted_broker
import numpy as np
import procfs
from broker_process import Brokers, ServerProcess
from clients import BulkSender, Consumer, DuePool, ask, ask_on
from consuming import Cycle, Taking
from load import Driver
from settings import BODY_BYTES, DRAIN_LANES, SINGLES_LANES
from tables import Column, Table, at_most, median, milliseconds, whole
from wire import even_template, json_request

TOPICS: Final = 10_000
LATE_TOPICS: Final = 300
"""More topics than have histograms of their own."""
MAKERS: Final = 32
"""Connections that make the topics: each send waits for a sync."""
SCRAPES: Final = 9
TURNS: Final = 40
TURN_S: Final = 0.5
"""Of single messages."""
ROWS: Final = 1_000
BATCHES: Final = 100
"""Of a turn in bulk; all is acked, so that turns are alike."""
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"


def measure(brokers: Brokers) -> Table:
    """Counting and scraping."""
    table = Table(
        "metrics: what counting costs, and a scrape of 10,000 topics",
        [
            Column("messages", "messages", whole),
            Column("loop us", "loop_us", "{:.2f}".format),
            Column("counting us", "counting_us", "{:.4f}".format),
            Column("share", "share", "{:.2%}".format),
            Column("spread", "spread", "{:.2%}".format),
            Column("KiB", "kib", whole),
            Column("ms", "scrape_ms", milliseconds),
            Column("processor ms", "cpu_ms", milliseconds),
        ],
        notes=[
            f"Medians; of {TURNS} turns for counting. us: processor time of the loop a message. "
            "Share: of counting in the rest; spread: half of its interquartile range."
        ],
    )
    for case, lanes, run in (
        (f"send, receive, ack, {SINGLES_LANES} connections", SINGLES_LANES, _singles),
        (f"the same in bulk, {ROWS:,} a request", DRAIN_LANES, _bulks),
    ):
        figures = _counting(brokers, lanes, run)
        table.add(case, figures, [at_most(figures["share"], 0.02, "2 %")])
    with brokers.fresh() as broker:
        _make_topics(broker.port)
        for case, accept in (("scrape, text", "*/*"), ("scrape, OpenMetrics", OPENMETRICS)):
            figures = _scrapes(broker, accept)
            table.add(case, figures, [at_most(figures["scrape_ms"], 100.0, "100 ms")])
    return table


def _counting(brokers: Brokers, lanes: int, run: Callable[[Driver], int]) -> dict[str, Any]:
    """What counting takes of the processor time of the broker's loop, turn by turn."""
    messages: list[int] = []
    with NamedTemporaryFile() as file:
        spent_ns = np.memmap(file.name, np.int64, "w+", shape=1)
        program = [sys.executable, "-P", counted_broker.__file__, file.name]
        with (
            Brokers(program, brokers.data_root).fresh() as broker,
            Driver(broker.port, lanes) as driver,
        ):
            run(driver)
            marks = [(int(spent_ns[0]), procfs.loop_ns(broker.process_id))]
            for _ in range(TURNS):
                messages.append(run(driver))
                marks.append((int(spent_ns[0]), procfs.loop_ns(broker.process_id)))
    counting_ns, loop_ns = np.diff(marks, axis=0).T
    shares = counting_ns / (loop_ns - counting_ns)
    low, high = np.percentile(shares, (25, 75))
    return {
        "messages": sum(messages),
        "loop_us": median(loop_ns / messages / 1_000),
        "counting_us": median(counting_ns / messages / 1_000),
        "share": median(shares),
        "spread": (high - low) / 2,
    }


def _singles(driver: Driver) -> int:
    send = json_request("/v1/topics/single/messages", b'{"body":"%b"}' % (b"x" * BODY_BYTES))
    until = time.perf_counter() + TURN_S
    script = Cycle(Taking(["single"]), send, SINGLES_LANES, until)
    driver.run(script)
    return script.messages()


def _bulks(driver: Driver) -> int:
    due_ms = np.full(ROWS, int(time.time() * 1000), np.int64)
    driver.run(BulkSender(even_template("bulk", ROWS, BODY_BYTES), DuePool(due_ms), BATCHES))
    consumer = Consumer("bulk", target=ROWS * BATCHES, rows_max=ROWS, wait_ms=100)
    driver.run(consumer)
    return consumer.acked


def _make_topics(port: int) -> None:
    def make(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for number in range(first, TOPICS, MAKERS):
            ask_on(connection, "POST", f"/v1/topics/t{number}/messages", {"body": "x"})
            if number < LATE_TOPICS:
                ask_on(connection, "POST", f"/v1/topics/t{number}/receive", {"wait_ms": 1_000})
        connection.close()

    with ThreadPoolExecutor(MAKERS) as pool:
        list(pool.map(make, range(MAKERS)))
    assert len(ask(port, "GET", "/v1/topics?limit=1")["topics"]) == 1


def _scrapes(broker: ServerProcess, accept: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
    took, size = [], 0
    before_s = broker.cpu_seconds()
    for _ in range(SCRAPES):
        begun = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept": accept})
        size = len(connection.getresponse().read())
        took.append((time.perf_counter() - begun) * 1_000)
    cpu_ms = (broker.cpu_seconds() - before_s) / SCRAPES * 1_000
    connection.close()
    return {"kib": size / 1024, "scrape_ms": sorted(took)[SCRAPES // 2], "cpu_ms": cpu_ms}
