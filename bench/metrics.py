"""What metrics cost: counting lateness beside the calls that it is counted in, and a scrape.

The cost of counting is measured in two ways. One is the processor time of the observing functions
alone, over that which a broker needs for the same messages. The other is a broker that counts in
some turns and not in others: two brokers that do the same differ by more than the cost, since their
memory does. How much turns that all count differ is told as noise.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import msgpack
import numpy as np
import procfs
from broker_process import Brokers, ServerProcess
from clients import ask, ask_on
from settings import BODY_BYTES
from tables import Column, Table, at_most, median, milliseconds, whole

from delaylog.broker.engine.watch.lateness import Lateness
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.layout import INDEX_ENTRY

TOPICS: Final = 10_000
LATE_TOPICS: Final = 300
"""More topics than have histograms of their own."""
MAKERS: Final = 32
"""Connections that make the topics: each send waits for a sync."""
SCRAPES: Final = 9
BULK: Final = "application/vnd.delaylog.batch"
BULK_ROWS: Final = 10_000
BULKS: Final = 40
SINGLES: Final = 4_000
TURNS: Final = 40
"""Turns of a broker that counts or does not, half of each."""
TURN_PART: Final = 20
"""A turn is this part of the messages above: all turns lease less than a million, the limit."""
LEASED: Final = {"wait_ms": 1_000, "lease_ms": 3_600_000}
"""How messages are received: none comes back while others are measured."""
SWITCHING: Final = """
import signal
import sys
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.engine.watch.lateness import Lateness
from delaylog.broker.host.watch.timings import Timings
COUNTING = (
    (Histogram, "note"), (Histogram, "note_late"), (Histogram, "wants_example"),
    (Lateness, "note_handed_out"), (Timings, "note_request"), (Timings, "note_trace"),
)
methods = {(kind, name): vars(kind)[name] for kind, name in COUNTING}
nothing = lambda *_, **__: None
counts = True
def switch(*_):
    global counts
    counts = not counts
    for (kind, name), method in methods.items():
        setattr(kind, name, method if counts else nothing)
signal.signal(signal.SIGUSR1, switch)
from delaylog.broker.cli.main import main
sys.exit(main())
"""
"""A broker that counts, or counts nothing, by turns."""
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
            Column("noise", "noise", "{:.2%}".format),
            Column("rate without", "rate_ratio", "{:.3f}".format),
            Column("KiB", "kib", whole),
            Column("ms", "scrape_ms", milliseconds),
            Column("processor ms", "cpu_ms", milliseconds),
        ],
        notes=[
            "us: processor time a message. The scrapes are medians. `in turns`: medians of "
            f"{TURNS} turns, in half of which, at random, the broker counts nothing; `rate "
            "without`: its rate then by that with; `noise`: how much the halves of the counting "
            "turns differ."
        ],
    )
    with brokers.folder() as folder, brokers.on(folder) as broker:
        for case, rows, run in (
            ("single sends and receives", 1, _singles),
            (f"bulk, {BULK_ROWS:,} a request", BULK_ROWS, _bulk),
        ):
            before_s = broker.cpu_seconds()
            messages = run(broker.port, 1)
            broker_us = (broker.cpu_seconds() - before_s) / messages * 1e6
            figures = {
                "messages": messages,
                "broker_us": broker_us,
                "counting_us": _counting_us(rows),
            }
            figures["share"] = figures["counting_us"] / broker_us
            table.add(case, figures, [at_most(figures["share"], 0.02, "2 %")])
        for case, run in (("single, in turns", _singles), ("bulk, in turns", _bulk)):
            figures = _in_turns(brokers, run)
            table.add(case, figures, [at_most(figures["share"], 0.02, "2 %")])
        _make_topics(broker.port)
        for case, accept in (("scrape, text", "*/*"), ("scrape, OpenMetrics", OPENMETRICS)):
            figures = _scrapes(broker, accept)
            table.add(case, figures, [at_most(figures["scrape_ms"], 100.0, "100 ms")])
    return table


def _in_turns(brokers: Brokers, run: Callable[[int, int], int]) -> dict[str, Any]:
    """What a message costs a broker while it counts, and while it counts nothing."""
    switching = Brokers([sys.executable, "-P", "-c", SWITCHING], brokers.data_root)
    # At random: work of the background, such as a checkpoint, also comes once in some turns.
    order = Random(1).sample([True, False], TURNS, counts=[TURNS // 2, TURNS // 2])
    turns: dict[bool, list[tuple[float, float, int]]] = {True: [], False: []}
    with switching.fresh() as broker:
        _turn(broker, run)
        counts = True
        for wanted in order:
            if wanted != counts:
                os.kill(broker.process_id, signal.SIGUSR1)
                counts = wanted
            turns[counts].append(_turn(broker, run))
    (us, passed_us, messages), silent = (_middle(turns[each]) for each in (True, False))
    odd, even = _middle(turns[True][::2]), _middle(turns[True][1::2])
    return {
        "messages": messages,
        "broker_us": us,
        "counting_us": us - silent[0],
        "share": us / silent[0] - 1,
        "noise": abs(odd[0] / even[0] - 1),
        "rate_ratio": passed_us / silent[1],
    }


def _middle(turns: list[tuple[float, float, int]]) -> tuple[float, float, int]:
    """The medians of the times a message, and the sum of the messages."""
    us, passed_us, messages = zip(*turns, strict=True)
    return median(list(us)), median(list(passed_us)), sum(messages)


def _turn(broker: ServerProcess, run: Callable[[int, int], int]) -> tuple[float, float, int]:
    """Processor time and time of a message, in us, and the number of messages."""
    before_s, begun = procfs.run_seconds(broker.process_id), time.perf_counter()
    messages = run(broker.port, TURN_PART)
    passed_s = time.perf_counter() - begun
    return (
        (procfs.run_seconds(broker.process_id) - before_s) / messages * 1e6,
        passed_s / messages * 1e6,
        messages,
    )


def _singles(port: int, parts: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(SINGLES // parts):
        ask_on(connection, "POST", "/v1/topics/single/messages", {"body": "x" * BODY_BYTES})
        ask_on(connection, "POST", "/v1/topics/single/receive", LEASED)
    connection.close()
    return SINGLES // parts


def _bulk(port: int, parts: int) -> int:
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
    for _ in range(BULKS // parts):
        connection.request("POST", "/v1/topics/bulk/messages", body, headers)
        connection.getresponse().read()
        wanted = json.dumps({**LEASED, "max": BULK_ROWS}).encode()
        connection.request("POST", "/v1/topics/bulk/receive", wanted, asked)
        connection.getresponse().read()
    connection.close()
    return BULKS // parts * BULK_ROWS


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
