"""What the dashboard waits for: each call of its pages beside a backlog in many topics.

One broker is filled with messages over a day, the same number in each topic. Then each call is made
some times, alone. While all of them go round and round, messages fall due in one more topic; how
late a consumer gets them is compared with the same before.

    python bench/dashboard.py --topics 1000 --messages 10000000
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from delaylog.client import Client
from delaylog.client.child_broker import ChildBroker

HOUR_MS: Final = 3_600_000
FIRST_MS: Final = 600_000
TIMES: Final = 20
TIMED: Final = 200
SPACING_MS: Final = 25
CALLS: Final = {
    "overview": "/v1/overview?minutes=60&hours=336",
    "topics by name": "/v1/topics?limit=100",
    "topics with the most waiting": "/v1/topics?limit=100&sort=waiting",
    "topics that contain 77": "/v1/topics?limit=100&contains=77",
    "a topic": "/v1/topics/t0500",
    "its statistics": "/v1/topics/t0500/stats?delay_buckets=false",
    "its forecast": "/v1/topics/t0500/forecast?minutes=60&hours=48",
    "its messages": "/v1/topics/t0500/messages?limit=50",
    "its messages by state and tag": "/v1/topics/t0500/messages?limit=50&state=waiting&tag=none",
    "its dead letters": "/v1/topics/t0500/dead?limit=100&history=false",
    "a piece of a count": "/v1/topics/t0500/messages:count",
    "jobs": "/v1/jobs",
    "transactions": "/v1/transactions?limit=100",
    "schedules of a topic": "/v1/topics/t0500/schedules?limit=100",
    "clock": "/v1/clock",
}


def ask(connection: http.client.HTTPConnection, path: str) -> Any:
    """One call."""
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (path, body[:300])
    return json.loads(body)


def fill(url: str, topics: int, messages: int) -> None:
    """The same number of messages in each topic, due at random times of a day."""
    each = messages // topics
    random = np.random.default_rng(1)
    with Client(url) as client:
        for number in range(topics):
            due = int(time.time() * 1000) + FIRST_MS + random.integers(0, 24 * HOUR_MS, each)
            client.send_columns(f"t{number:04}", [b"x" * 50] * each, deliver_at_ms=due)


def lateness(url: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How late each of some messages comes, in ms, as the consumer's clock says."""
    late = []
    with Client(url) as client:
        first = int(time.time() * 1000) + 500
        for number in range(TIMED):
            client.send("timed", b"x", deliver_at_ms=first + number * SPACING_MS)
        while len(late) < TIMED:
            got = client.receive("timed", max=1, wait_ms=5_000)
            late += [time.time() * 1000 - each.deliver_at_ms for each in got]
            client.ack(got)
    return np.array(late)


def rounds(port: int, ended: threading.Event) -> None:
    """All calls, round and round, as fast as a page asks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not ended.is_set():
        for path in CALLS.values():
            ask(connection, path)
            time.sleep(0.05)


def measure(broker: ChildBroker, topics: int, messages: int) -> None:
    """Fill it, and print a line for each call."""
    began = time.monotonic()
    fill(broker.url, topics, messages)
    print(f"{messages:,} messages in {topics:,} topics, sent in {time.monotonic() - began:.0f} s")
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
    for name, path in CALLS.items():
        took = []
        for _ in range(TIMES):
            began = time.perf_counter()
            answer = ask(connection, path)
            took.append((time.perf_counter() - began) * 1000)
        size = len(json.dumps(answer)) / 1024
        print(f"{name:32} median {np.median(took):6.1f}  max {max(took):6.1f} ms  {size:6.0f} KiB")
    began, pieces, cursor = time.perf_counter(), 0, ""
    while cursor is not None:
        path = CALLS["a piece of a count"] + (f"?cursor={cursor}" if cursor else "")
        cursor, pieces = ask(connection, path)["cursor"], pieces + 1
    print(f"a whole count: {time.perf_counter() - began:.1f} s in {pieces} pieces")
    alone = lateness(broker.url)
    ended = threading.Event()
    thread = threading.Thread(target=rounds, args=(broker.port, ended))
    thread.start()
    beside = lateness(broker.url)
    ended.set()
    thread.join()
    for name, late in (("alone", alone), ("beside the dashboard", beside)):
        print(f"lateness {name}: p50 {np.median(late):.1f}, p99 {np.quantile(late, 0.99):.1f} ms")


async def main() -> None:
    """Parse the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--data-root", default="/var/tmp")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.data_root) as folder:
        async with ChildBroker(Path(folder) / "data") as broker:
            await asyncio.to_thread(measure, broker, args.topics, args.messages)


if __name__ == "__main__":
    asyncio.run(main())
