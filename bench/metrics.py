"""What metrics cost: counting lateness beside the calls that it is counted in, and a scrape.

The cost of counting is processor time of the observing functions alone, over the processor time
that a broker needs for the same messages, which is measured beside it: throughputs with and without
it differ by less than they vary.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any, Final

import msgpack
import numpy as np
from broker_process import Brokers, ServerProcess
from clients import ask, ask_on
from settings import BODY_BYTES
from tables import Column, Table, at_most, milliseconds, whole

from delaylog.broker.engine.watch.lateness import Lateness
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.layout import INDEX_ENTRY

TOPICS: Final = 10_000
LATE_TOPICS: Final = 300
"""More topics than have histograms of their own."""
SCRAPES: Final = 9
BULK: Final = "application/vnd.delaylog.batch"
BULK_ROWS: Final = 10_000
BULKS: Final = 40
SINGLES: Final = 4_000
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"


def measure(brokers: Brokers) -> Table:
    """Counting and scraping."""
    table = Table(
        "metrics: what counting costs, and a scrape of 10,000 topics",
        [
            Column("messages", "messages", whole),
            Column("broker us", "broker_us", "{:.3f}".format),
            Column("counting us", "counting_us", "{:.3f}".format),
            Column("share", "share", "{:.2%}".format),
            Column("KiB", "kib", whole),
            Column("ms", "scrape_ms", milliseconds),
            Column("processor ms", "cpu_ms", milliseconds),
        ],
        notes=["us: processor time a message. The scrapes are medians."],
    )
    with brokers.folder() as folder, brokers.on(folder) as broker:
        for case, rows, run in (
            ("single sends and receives", 1, _singles),
            (f"bulk, {BULK_ROWS:,} a request", BULK_ROWS, _bulk),
        ):
            before_s = broker.cpu_seconds()
            messages = run(broker.port)
            broker_us = (broker.cpu_seconds() - before_s) / messages * 1e6
            figures = {
                "messages": messages,
                "broker_us": broker_us,
                "counting_us": _counting_us(rows),
            }
            figures["share"] = figures["counting_us"] / broker_us
            table.add(case, figures, [at_most(figures["share"], 0.02, "2 %")])
        _make_topics(broker.port)
        for case, accept in (("scrape, text", "*/*"), ("scrape, OpenMetrics", OPENMETRICS)):
            figures = _scrapes(broker, accept)
            table.add(case, figures, [at_most(figures["scrape_ms"], 100.0, "100 ms")])
    return table


def _singles(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(SINGLES):
        ask_on(connection, "POST", "/v1/topics/single/messages", {"body": "x" * BODY_BYTES})
        ask_on(connection, "POST", "/v1/topics/single/receive", {"wait_ms": 1_000})
    connection.close()
    return SINGLES


def _bulk(port: int) -> int:
    body = msgpack.packb(
        {
            "v": 1,
            "n": BULK_ROWS,
            "delay_ms": 0,
            "body_size": BODY_BYTES,
            "bodies": bytes(BODY_BYTES * BULK_ROWS),
        }
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": BULK, "Accept": BULK}
    asked = {"Content-Type": "application/json", "Accept": BULK}
    for _ in range(BULKS):
        connection.request("POST", "/v1/topics/bulk/messages", body, headers)
        connection.getresponse().read()
        wanted = b'{"max":%d,"wait_ms":1000}' % BULK_ROWS
        connection.request("POST", "/v1/topics/bulk/receive", wanted, asked)
        connection.getresponse().read()
    connection.close()
    return BULKS * BULK_ROWS


def _counting_us(n: int) -> float:
    """Processor time a message of all that is counted for a send and a receive of `n` messages."""
    late, timings = Lateness(), Timings()
    now_ms = 1_800_000_000_000
    rows = np.zeros(n, INDEX_ENTRY)
    rows["deliver_at"] = now_ms - np.arange(n) % 3
    refs, attempts = np.arange(n), np.ones(n, np.int64)
    due_ms = np.ascontiguousarray(rows["deliver_at"])

    def count() -> None:
        late.ready.note_late(due_ms, now_ms)
        late.note_handed_out(rows, refs, attempts, now_ms, b"")
        for call in ("send", "receive"):
            timings.note_request("http", call, 0.001)
        timings.commit_wait.note(0.001)
        timings.fsync.note(0.001)

    return _processor_us(count, max(200_000 // n, 200)) / n


def _processor_us(call: Callable[[], None], times: int) -> float:
    call()
    begun = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begun) / times * 1e6


def _make_topics(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(TOPICS):
        ask_on(connection, "POST", f"/v1/topics/t{number}/messages", {"body": "x"})
    for number in range(LATE_TOPICS):
        ask_on(connection, "POST", f"/v1/topics/t{number}/receive", {"wait_ms": 1_000})
    connection.close()
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
