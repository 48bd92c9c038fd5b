"""Transactions: staging, how fast a commit answers, and what its publication does to deliveries.

Rows are staged in parts of 10,000 by several connections, due far off. Then a probe of small sends
that are due soon runs, first alone, then while the commit is published: what it is late by in the
two is what a publication costs everybody else.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from broker_process import Brokers, ServerProcess
from lateness import LEAD_MS, SPREAD_MS, Received, lateness_figures, produce_and_receive
from load import Buffer, Driver, LoadError
from settings import BODY_BYTES, INGEST_LANES, Settings
from tables import Column, Table, at_most, microseconds, milliseconds, rate, seconds
from wire import BULK_TYPE, even_template, http_request
from workers import Worker, run_apart

TRANSACTION: Final = "bench"
PART_ROWS: Final = 10_000
PROBE_RATE: Final = 1_000
QUIET_S: Final = 8.0
DUE_AHEAD_MS: Final = 24 * 3_600_000
COMMIT_S_MAX: Final = 1.0
DELAY_MS_MAX: Final = 50.0
POLL_S: Final = 0.05


class Stager:
    """Stages so many parts, all with the same rows."""

    def __init__(self, parts: int) -> None:
        now_ms = int(time.time() * 1000)
        dues = now_ms + DUE_AHEAD_MS + np.arange(PART_ROWS) * 360
        template = even_template("staged", PART_ROWS, BODY_BYTES)
        self._body = template.body(dues.astype("<i8").tobytes())
        self._parts = iter(range(parts))
        self.staged = 0

    def request(self, lane: int) -> Sequence[Buffer] | None:  # noqa: ARG002
        """The next part."""
        part = next(self._parts, None)
        if part is None:
            return None
        path = f"/v1/transactions/{TRANSACTION}/parts?topic=staged&part={part}&attempt=1&number=0"
        size = len(self._body)
        head = http_request("POST", path, size, content=BULK_TYPE, accept="application/json")
        return (head, self._body)

    def answer(self, lane: int, status: int, body: memoryview) -> None:  # noqa: ARG002
        """It must be staged."""
        if status != 200:
            raise LoadError(f"stage: {status} {bytes(body[:300])!r}")
        self.staged += PART_ROWS


@dataclass(frozen=True, slots=True)
class Published:
    """When a commit was asked for, answered, and all of it published: wall-clock seconds."""

    asked: float
    answered: float
    done: float
    cpu_s: float
    """Of the broker, over all of that."""


def measure(brokers: Brokers, settings: Settings) -> Table:
    """One row each for staging and commit, one for each run of the probe."""
    rows = settings.transaction_rows
    table = commit_table(
        f"transactions: {rate(rows)} rows of {BODY_BYTES} B in parts of {PART_ROWS:,}"
    )
    with brokers.fresh() as broker:
        port = broker.port
        warm_up(port)
        call(port, "POST", "/v1/transactions", {"transaction": TRANSACTION})
        before_s, began = broker.cpu_seconds(), time.monotonic()
        parts = rows // PART_ROWS
        run_apart(stage, port, parts)
        table.add("stage", work(broker, rows, before_s, time.monotonic() - began))
        winners = [{"part": part, "attempt": 1, "rows": PART_ROWS} for part in range(parts)]
        commit_beside_probe(table, broker, rows, winners)
    return table


def commit_table(title: str) -> Table:
    """A table that staging, a commit and its probe stand in."""
    return Table(
        f"{title}, a probe of {PROBE_RATE:,} messages/s beside the publication",
        [
            Column("took s", "took_s", seconds),
            Column("rows/s", "rate", rate),
            Column("server CPU us/row", "server_us", microseconds),
            Column("p50 ms", "p50_ms", milliseconds),
            Column("p99 ms", "p99_ms", milliseconds),
            Column("max ms", "max_ms", milliseconds),
        ],
    )


def warm_up(port: int) -> None:
    """Imports, first files, first hour."""
    produce_and_receive(port, 500, 2.0, topic="warm-up")


def commit_beside_probe(
    table: Table, broker: ServerProcess, rows: int, winners: Sequence[Mapping[str, Any]]
) -> None:
    """Commit what is staged as TRANSACTION; the probe runs alone before, and beside it."""
    port = broker.port
    _, quiet = produce_and_receive(port, PROBE_RATE, QUIET_S, topic="quiet")
    alone = lateness_figures(quiet, int(PROBE_RATE * QUIET_S))
    probe_s = QUIET_S + rows / 100_000
    after_s = 2.0 + (LEAD_MS + SPREAD_MS) / 1000
    committing = Worker(commit, broker, rows, winners, after_s=after_s)
    _, received = produce_and_receive(port, PROBE_RATE, probe_s, topic="probe")
    went = committing.result().value
    answer_s = went.answered - went.asked
    table.add("commit's answer", {"took_s": answer_s}, [at_most(answer_s, COMMIT_S_MAX, "1 s")])
    took_s = went.done - went.answered
    figures = {"took_s": took_s, "rate": rows / took_s, "server_us": went.cpu_s / rows * 1e6}
    table.add("publish", figures)
    table.add("probe alone", alone)
    beside = between(received, went.asked, went.done)
    worse = beside["max_ms"] - alone["max_ms"]
    late = at_most(worse, DELAY_MS_MAX, "50 ms more than alone")
    early = at_most(beside["early"], 0, "0 early")
    table.add("probe beside it", beside, [late, early])
    table.notes.append("Server CPU of publish holds that of the probe beside it.")


def between(received: Received, first_s: float, last_s: float) -> dict[str, float]:
    """Lateness of what was due in a stretch of time."""
    mine = (received.dues >= first_s * 1000) & (received.dues <= last_s * 1000)
    part = Received(received.refs[mine], received.dues[mine], received.at_ms[mine])
    if not len(part.refs):
        raise LoadError("nothing of the probe was due while rows were published")
    return lateness_figures(part, len(part.refs))


def stage(port: int, parts: int) -> int:
    """Stage all parts; returns the rows."""
    stager = Stager(parts)
    with Driver(port, INGEST_LANES) as driver:
        driver.run(stager)
    return stager.staged


def commit(
    broker: ServerProcess, rows: int, winners: Sequence[Mapping[str, Any]], *, after_s: float
) -> Published:
    """Commit after a while, and wait until all rows are in their hours."""
    time.sleep(after_s)
    port = broker.port
    before_s, asked = broker.cpu_seconds(), time.time()
    path = f"/v1/transactions/{TRANSACTION}"
    answer = call(port, "POST", f"{path}/commit", {"winners": winners})
    answered = time.time()
    if answer["rows"] != rows:
        raise LoadError(f"commit: {answer}")
    while call(port, "GET", path)["published"] < rows:
        time.sleep(POLL_S)
    return Published(asked, answered, time.time(), broker.cpu_seconds() - before_s)


def call(port: int, method: str, path: str, members: Any = None) -> Any:
    """One call that must succeed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = None if members is None else json.dumps(members).encode()
    connection.request(method, path, body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise LoadError(f"{method} {path}: {response.status} {text[:300]!r}")
    return json.loads(text)


def work(broker: ServerProcess, rows: int, before_s: float, took_s: float) -> dict[str, float]:
    """Figures of a row that began when the broker had used `before_s`."""
    cpu_s = broker.cpu_seconds() - before_s
    return {"took_s": took_s, "rate": rows / took_s, "server_us": cpu_s / rows * 1e6}
