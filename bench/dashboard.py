"""What the dashboard waits for: each call of its pages beside a backlog in many topics.

One broker is filled with messages over a day: a tenth of them in one topic, the same number in each
other one, with keys and tags. Some fail and die, and one topic has schedules, groups and a push
target. Then each call is made some times, alone. While all of them go round and round, messages
fall due in one more topic; how late a consumer gets them is compared with the same before.

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from procfs import cpu_seconds

from delaylog.client import Client
from delaylog.client.child_broker import ChildBroker

HOUR_MS: Final = 3_600_000
FIRST_MS: Final = 600_000
TIMES: Final = 20
TIMED: Final = 200
SPACING_MS: Final = 25
SEND_ROWS: Final = 50_000
FEW: Final = 1_000
"""One of as many messages has the tag `few`; one of ten has `many`."""
DEAD_OF: Final = 100
"""One of as many messages is in the topic of dead letters as well."""
REASONS: Final = 20
MOST_MS: Final = 200
"""No call may take longer."""
CALLS: Final = {
    "overview": "/v1/overview?minutes=60&hours=336",
    "topics by name": "/v1/topics?limit=100",
    "topics with the most waiting": "/v1/topics?limit=100&sort=waiting",
    "topics that contain 77": "/v1/topics?limit=100&contains=77",
    "a topic": "/v1/topics/t0500",
    "its statistics": "/v1/topics/t0500/stats?delay_buckets=false",
    "its forecast": "/v1/topics/t0500/forecast?minutes=60&hours=48",
    "its messages": "/v1/topics/t0500/messages?limit=50",
    "messages of the largest topic": "/v1/topics/large/messages?limit=50",
    "by state and a tag that none has": "/v1/topics/large/messages?limit=50&state=waiting&tag=none",
    "by a key": "/v1/topics/large/messages?limit=50&key=order-7",
    "by a rare tag": "/v1/topics/large/messages?limit=50&tag=few",
    "by a common tag": "/v1/topics/large/messages?limit=50&tag=many",
    "by a rare tag, in the last hour": "/v1/topics/large/messages?limit=50&tag=few&due_from={last}",
    "the life of the oldest message": "/v1/topics/failed/messages/oldest?life=true",
    "the life of a new message": "/v1/topics/failed/messages/newest?life=true",
    "dead letters": "/v1/topics/failed/dead?limit=100&history=false",
    "dead letters with their histories": "/v1/topics/failed/dead?limit=100&history=true",
    "dead letters by reason": "/v1/topics/failed/dead/reasons",
    "a piece of a count": "/v1/topics/large/messages:count",
    "a piece of a count by a rare tag": "/v1/topics/large/messages:count?tag=few",
    "groups": "/v1/topics/t0500/groups",
    "claims": "/v1/topics/t0500/claims",
    "jobs": "/v1/jobs",
    "a job": "/v1/jobs/{job}",
    "transactions": "/v1/transactions?limit=100",
    "schedules of a topic": "/v1/topics/t0500/schedules?limit=100",
    "next firings of a schedule": "/v1/topics/t0500/schedules/s0/preview?n=10",
    "all schedules": "/v1/schedules?limit=100",
    "push targets of a topic": "/v1/topics/t0500/targets",
    "all push targets": "/v1/targets?limit=100",
    "cluster": "/v1/cluster",
    "metrics": "/metrics",
    "session": "/v1/session",
    "clock": "/v1/clock",
}


def ask(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", body: object = None
) -> Any:
    """One call; the answer, a text if it is no JSON. A broker alone has no cluster (404)."""
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
    answer = connection.getresponse()
    found = answer.read()
    assert answer.status < 300 or path == CALLS["cluster"], (path, answer.status, found[:300])
    return json.loads(found) if "json" in answer.headers["Content-Type"] else found.decode()


def fill(url: str, topics: int, messages: int) -> None:
    """Messages of a topic are due at random times of a day; four have each key."""
    random = np.random.default_rng(1)
    large = messages // 10
    names = {f"t{number:04}": (messages - large) // topics for number in range(topics)}
    with Client(url) as client:
        for topic, count in {**names, "large": large}.items():
            for first in range(0, count, SEND_ROWS):
                rows = range(first, min(first + SEND_ROWS, count))
                now_ms = int(time.time() * 1000)
                tags = [["many"] * (k % 10 == 0) + ["few"] * (k % FEW == 0) for k in rows]
                client.send_columns(
                    topic,
                    [b"x" * 50] * len(rows),
                    keys=[f"order-{k // 4}" for k in rows],
                    tags=tags,
                    deliver_at_ms=now_ms + FIRST_MS + random.integers(0, 24 * HOUR_MS, len(rows)),
                )


def fail(client: Client, name: str, count: int) -> None:
    """One message fails five times; `count` others die, for one of some reasons each."""
    client.send("failed", b"x" * 50, id=name, delay_ms=0)
    for attempt in range(5):
        (tried,) = client.receive("failed", max=1, wait_ms=5_000)
        client.nack([tried], delay_ms=0, reason=f"attempt {attempt} failed")
    client.reschedule("failed", name, delay_ms=HOUR_MS)
    if count:
        client.send_columns("failed", [b"x" * 50] * count, delay_ms=0)
    died, part = 0, min(1_000, -(-count // REASONS))
    while died < count:
        got = client.receive("failed", max=part, wait_ms=5_000)
        client.reject(got, reason=f"E{died // part % REASONS}: no route to host")
        died += len(got)


def prepare(port: int) -> dict[str, object]:
    """Schedules, groups, a push target and a job; returns what paths need."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    path = "/v1/topics/t0500"
    ask(connection, path, "PUT", {})
    for number in range(100):
        timing = {"interval_ms": HOUR_MS, "start_ms": int(time.time() * 1000) + 2 * HOUR_MS}
        ask(connection, f"{path}/schedules/s{number}", "PUT", {**timing, "body": "x"})
    for name in ("audit", "pushed"):
        ask(connection, f"{path}/groups/{name}", "PUT", {})
    ask(connection, f"{path}/groups/pushed/target", "PUT", {"url": "https://example.com/"})
    ask(connection, f"{path}/groups/pushed/target", "PATCH", {"push": "off"})
    job = ask(connection, f"{path}/messages:cancel", "POST", {"filter": {"tag": "none"}})["job"]
    return {"job": job, "last": int(time.time() * 1000) + 23 * HOUR_MS}


def lateness(url: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How late each of some messages comes, in ms, as the consumer's clock says."""
    late: list[float] = []
    with Client(url) as client:
        due = int(time.time() * 1000) + 1_000 + np.arange(TIMED) * SPACING_MS
        client.send_columns("timed", [b"x"] * TIMED, deliver_at_ms=due)
        while len(late) < TIMED:
            # Acks wait for the disk, and would delay the next receive.
            got = client.receive("timed", max=100, wait_ms=5_000)
            late += [time.time() * 1000 - each.deliver_at_ms for each in got]
        client.purge("timed", force=True)
    return np.array(late)


def rounds(port: int, paths: Iterable[str], ended: threading.Event) -> None:
    """All calls, round and round, as fast as a page asks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not ended.is_set():
        for path in paths:
            ask(connection, path)
            time.sleep(0.05)


def measure(broker: ChildBroker, topics: int, messages: int) -> None:
    """Fill it, and print a line for each call."""
    began = time.monotonic()
    with Client(broker.url) as client:
        fail(client, "oldest", messages // DEAD_OF)
        made = prepare(broker.port)
        fill(broker.url, topics, messages)
        fail(client, "newest", 0)
    print(f"{messages:,} messages in {topics:,} topics, made in {time.monotonic() - began:.0f} s")
    calls = {name: path.format(**made) for name, path in CALLS.items()}
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
    process_id = broker.process_id
    assert process_id is not None, "the broker runs"
    for name, path in calls.items():
        took, before = [], cpu_seconds(process_id)
        for _ in range(TIMES):
            began = time.perf_counter()
            answer = ask(connection, path)
            took.append((time.perf_counter() - began) * 1000)
        size = len(json.dumps(answer)) / 1024
        used = (cpu_seconds(process_id) - before) * 1000 / TIMES
        times = f"median {np.median(took):6.1f}  max {max(took):6.1f}  processor {used:5.1f} ms"
        missed = f"  MISSED: over {MOST_MS} ms" if max(took) > MOST_MS else ""
        print(f"{name:32} {times}  {size:6.0f} KiB{missed}")
    began, pieces, cursor = time.perf_counter(), 0, ""
    while cursor is not None:
        path = CALLS["a piece of a count"] + (f"?cursor={cursor}" if cursor else "")
        cursor, pieces = ask(connection, path)["cursor"], pieces + 1
    print(f"a whole count: {time.perf_counter() - began:.1f} s in {pieces} pieces")
    alone = lateness(broker.url)
    ended = threading.Event()
    thread = threading.Thread(target=rounds, args=(broker.port, list(calls.values()), ended))
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
