"""Many of everything but messages: a hundred thousand topics, nine thousand idle long polls.

Each case has a broker of its own. Beside its resident size stands what the crowd costs those who do
something meanwhile.
"""

from __future__ import annotations

import http.client
import json
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import procfs
from broker_process import Brokers, ServerProcess
from clients import ask
from load import Driver, LoadError, expect_ok
from memory import RESIDENT_MAX, at_rest
from settings import BODY_BYTES, Settings
from tables import (
    Column,
    Table,
    at_most,
    mebibytes,
    milliseconds,
    percent,
    seconds,
    whole,
)
from wire import even_template
from workers import run_apart

TOPIC_MESSAGES: Final = 20
TOPICS_RESIDENT_MAX: Final = 600 << 20
PROBES: Final = 1_000
PROBE_LANES: Final = 8
PROBE_DELAY_MS: Final = 40
IDLE_S: Final = 5.0
WAIT_MS: Final = 60_000
TEN_YEARS_MS: Final = 10 * 365 * 86_400_000


def measure(brokers: Brokers, settings: Settings) -> Table:
    """The three cases."""
    table = Table(
        "scale: many topics, many idle long polls, a message far off",
        [
            Column("how many", "count", whole),
            Column("made in s", "made_s", seconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
            Column("idle CPU", "idle_cpu", percent),
            Column("late p50 ms", "late_p50_ms", milliseconds),
            Column("late p99 ms", "late_p99_ms", milliseconds),
            Column("/metrics KiB", "metrics_kib", whole),
            Column("in ms", "metrics_ms", milliseconds),
            Column("restart s", "restart_s", seconds),
        ],
        notes=[
            f"Late: {PROBES:,} single messages with a delay of {PROBE_DELAY_MS} ms to waiting "
            "consumers while all of it is there, from due time to the consumer's hands. Restart: "
            "kill -9 to the ready line.",
        ],
    )
    for case, run in (
        ("topics", _topics),
        ("idle long polls", _polls),
        ("one message, ten years off", _ten_years),
    ):
        with brokers.folder() as folder, brokers.on(folder) as broker:
            try:
                figures = run(broker, folder, settings)
            except Exception as error:
                error.add_note(f"the broker's log ends with:\n{broker.log_tail()}")
                raise
        resident_max = TOPICS_RESIDENT_MAX if run is _topics else RESIDENT_MAX
        targets = [
            at_most(figures["rss_peak"], resident_max, f"{resident_max >> 20} MiB"),
            at_most(-float(figures["early"]), 0.0, "0 early"),
        ]
        if run is _topics:
            targets += [
                at_most(figures["idle_cpu"], 0.01, "1 % idle"),
                at_most(figures["restart_s"], 5.0, "restart 5 s"),
                at_most(figures["metrics_kib"], 1_000, "1 MB"),
                at_most(figures["metrics_ms"], 100.0, "100 ms"),
            ]
        table.add(case, figures, targets)
    return table


# --------------------------------------------------------------------------- cases


def _topics(broker: ServerProcess, _folder: Path, settings: Settings) -> dict[str, Any]:
    count = settings.topics
    made_s = run_apart(_fill_topics, broker.port, count).value
    broker.settle(limit_s=settings.settle_s)
    listed = _listed(broker.port)
    if len(listed) != count or any(t["counts"]["waiting"] != TOPIC_MESSAGES for t in listed):
        raise LoadError(f"{count} topics were made, {len(listed)} are listed")
    figures = _figures(broker, settings, count, made_s)
    figures["restart_s"] = _restart(broker)
    if len(_listed(broker.port)) < count:
        raise LoadError("topics were lost by the restart")
    return figures


def _listed(port: int) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        answer = ask(port, "GET", f"/v1/topics?cursor={cursor}")
        found += answer["topics"]
        cursor = answer["cursor"]
        if cursor is None:
            return found


def _polls(broker: ServerProcess, _folder: Path, settings: Settings) -> dict[str, Any]:
    _raise_files(settings.polls + 1_000)
    count = settings.polls
    begun = time.perf_counter()
    waiting = _open_polls(broker.port, count)
    try:
        deadline = time.monotonic() + 60
        while _metric(broker.port, "delaylog_waiting_consumers") < count:
            if time.monotonic() > deadline:
                raise LoadError(f"not all of {count} polls came to wait")
            time.sleep(0.05)
        made_s = time.perf_counter() - begun
        figures = _figures(broker, settings, count, made_s)
        still = _metric(broker.port, "delaylog_waiting_consumers")
        if still < count:
            raise LoadError(f"of {count} polls {count - still:.0f} gave up")
    finally:
        for connection in waiting:
            connection.close()
    figures["restart_s"] = _restart(broker)
    return figures


def _ten_years(broker: ServerProcess, folder: Path, settings: Settings) -> dict[str, Any]:
    begun = time.perf_counter()
    due_ms = int(time.time() * 1000) + TEN_YEARS_MS
    sent = ask(
        broker.port, "POST", "/v1/topics/far/messages", {"body": "far", "deliver_at_ms": due_ms}
    )
    made_s = time.perf_counter() - begun
    figures = _figures(broker, settings, 1, made_s)
    figures["restart_s"] = _restart(broker)
    kept = ask(broker.port, "GET", f"/v1/topics/far/messages/{sent['id']}")
    if (kept["deliver_at_ms"], kept["state"], kept["body"]) != (due_ms, "waiting", "far"):
        raise LoadError(f"it came back as {kept}")
    figures["disk"] = procfs.tree_bytes(folder)
    return figures


# --------------------------------------------------------------------------- parts


def _figures(
    broker: ServerProcess, settings: Settings, count: int, made_s: float
) -> dict[str, Any]:
    """Size at rest, cost of doing nothing, lateness of those who do something."""
    resident = at_rest(broker, settings.settle_s)
    before_s = broker.cpu_seconds()
    time.sleep(IDLE_S)
    idle = (broker.cpu_seconds() - before_s) / IDLE_S
    late = run_apart(_probe, broker.port).value
    begun = time.perf_counter()
    scraped = _scrape(broker.port)
    metrics_ms = (time.perf_counter() - begun) * 1_000
    return {
        "metrics_kib": len(scraped) / 1024,
        "metrics_ms": metrics_ms,
        "count": count,
        "made_s": made_s,
        "rss": resident.total,
        "rss_peak": broker.resident().peak,
        "idle_cpu": idle,
        "late_p50_ms": float(np.quantile(late, 0.5)),
        "late_p99_ms": float(np.quantile(late, 0.99)),
        "early": int(np.count_nonzero(np.array(late) < 0)),
    }


def _restart(broker: ServerProcess) -> float:
    broker.kill()
    broker.start()
    return broker.ready_at - broker.started_at


def _scrape(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != http.HTTPStatus.OK:
            raise LoadError(f"GET /metrics was answered by {answer.status}: {text[:200]}")
        return text
    finally:
        connection.close()


def _metric(port: int, name: str) -> float:
    for line in _scrape(port).splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise LoadError(f"there is no metric {name}")


def _raise_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise LoadError(f"{count} open files are needed, this system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class _TopicFill:
    """One bulk body of waiting messages to each topic."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._due_ms = int(time.time() * 1000) + 3_600_000

    def request(self, lane: int) -> Sequence[bytes | memoryview] | None:  # noqa: ARG002 (a Script)
        if not self._left:
            return None
        self._left -= 1
        template = even_template(f"topic-{self._left}", TOPIC_MESSAGES, BODY_BYTES)
        dues = self._due_ms + np.arange(TOPIC_MESSAGES, dtype=np.int64) * 1_000
        return template.pieces(memoryview(dues.tobytes()))

    def answer(self, lane: int, status: int, body: memoryview) -> None:  # noqa: ARG002
        expect_ok(status, body)


def _fill_topics(port: int, count: int) -> float:
    with Driver(port, PROBE_LANES) as driver:
        return driver.run(_TopicFill(count))


def _open_polls(port: int, count: int) -> list[socket.socket]:
    """Connections that each wait for a topic; every topic has ten."""
    body = json.dumps({"max": 10, "wait_ms": WAIT_MS}).encode()
    out = []
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        head = (
            f"POST /v1/topics/idle-{number // 10}/receive HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        out.append(connection)
    return out


def _probe(port: int) -> list[float]:
    """How late single messages reach consumers that wait for them, in ms; one after another."""
    late = []
    receiver = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sender = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(PROBES // 10):
        for k in range(10):
            members = {"body": str(number), "delay_ms": PROBE_DELAY_MS + k}
            sender.request("POST", "/v1/topics/probe/messages", json.dumps(members))
            sender.getresponse().read()
        got = 0
        while got < 10:
            receiver.request(
                "POST", "/v1/topics/probe/receive", json.dumps({"max": 10, "wait_ms": 10_000})
            )
            answer = json.loads(receiver.getresponse().read())
            at_ms = time.time() * 1000
            found = answer["messages"]
            if not found:
                raise LoadError("a probe did not come")
            late += [at_ms - message["deliver_at_ms"] for message in found]
            got += len(found)
            receipts = [message["receipt"] for message in found]
            receiver.request("POST", "/v1/topics/probe/ack", json.dumps({"receipts": receipts}))
            receiver.getresponse().read()
    return late
