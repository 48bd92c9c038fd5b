"""The embedded broker: send + receive + ack in batches, at each fsync dial, beside the floor.

Each batch is sent as columns, received whole and acked. `in turn` waits for each call; `overlapped`
sends a batch while the acks of the one before are not waited for, and keeps a few batches ahead, so
that the disk works while the next ones are decided. The floor writes and syncs the same bytes to a
file of its own, as often as the dial had it done.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from broker_process import Brokers
from settings import BODY_BYTES, Settings
from tables import Column, Table, at_least, median, microseconds, rate, span
from workers import run_apart

import delaylog

Texts = tuple[npt.NDArray[np.int64], bytes]
"""Sizes, and all bodies as one block."""

BATCH: Final = 1_000
AHEAD: Final = 4
"""Batches that are sent before the first of them is received, when calls overlap."""
WARM_UP: Final = 20
TARGET_RATE: Final = 1_000_000
DIALS: Final = ("always", "everysec", "never")


@dataclass(frozen=True, slots=True)
class Timed:
    """One run."""

    rate: float
    cpu_us: float
    commits: int
    floor: float
    """Messages/s of the same bytes and syncs without a broker."""


def in_turn(broker: Any, bodies: Texts, batches: int) -> None:
    """One batch after the other, each call waited for."""
    n = len(bodies[0])
    for _ in range(batches):
        broker.send_columns("t", bodies)
        received = broker.receive_columns("t", max=n)
        assert received.columns.n == n
        broker.ack(received)


def overlapped(broker: Any, bodies: Texts, batches: int) -> None:
    """Nothing is waited for but messages to come; at the end everything is."""
    n = len(bodies[0])
    ahead: deque[int] = deque()
    sent = done = 0
    while done < batches * n:
        while sent < batches and len(ahead) < AHEAD:
            broker.send_columns("t", bodies, wait=False)
            ahead.append(n)
            sent += 1
        received = broker.receive_columns("t", max=n, wait=timedelta(seconds=10))
        broker.ack(received, wait=False)
        done += received.columns.n
        while ahead and done >= (sent - len(ahead) + 1) * n:
            ahead.popleft()
    broker.flush()


WAYS: Final[dict[str, Callable[[Any, Texts, int], None]]] = {
    "in turn": in_turn,
    "overlapped": overlapped,
}


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Each dial, both ways, in turns; each run in a process and a folder of its own."""
    table = Table(
        f"sdk, embedded: send, receive and ack {BATCH:,} messages of {BODY_BYTES} B at a time, "
        f"median of {settings.sdk_rounds} runs of {settings.sdk_batches:,} batches",
        [
            Column("messages/s", "rate", rate),
            Column("least - most", "span", span),
            Column("CPU us", "cpu_us", microseconds),
            Column("commits", "commits", rate),
            Column("floor", "floor", rate),
        ],
    )
    runs: dict[tuple[str, str], list[Timed]] = {(d, w): [] for d in DIALS for w in WAYS}
    for _ in range(settings.sdk_rounds):
        for (dial, way), timed in runs.items():
            with brokers.folder() as folder:
                timed.append(run_apart(one_run, folder, dial, way, settings.sdk_batches).value)
    for (dial, way), timed in runs.items():
        rates = sorted(each.rate for each in timed)
        middle = median(rates)
        table.add(
            f"fsync {dial}, {way}",
            {
                "rate": middle,
                "span": [rates[0], rates[-1]],
                "cpu_us": median([each.cpu_us for each in timed]),
                "commits": median([each.commits for each in timed]),
                "floor": median([each.floor for each in timed]),
            },
            [at_least(middle, TARGET_RATE, "1 M/s")],
        )
    return table


def one_run(folder: Path, dial: str, way: str, batches: int) -> Timed:
    """Messages/s and the rest of it, in an empty folder."""
    bodies: Texts = (np.full(BATCH, BODY_BYTES), os.urandom(BODY_BYTES * BATCH))
    with delaylog.open(folder / "data", fsync=dial) as broker:
        run = WAYS[way]
        run(broker, bodies, WARM_UP)
        node = broker._thread.node
        log, commits = node.engine.state.log, node.log_commits.commits
        start, cpu_s, began = log.end_position, process_time(), perf_counter()
        run(broker, bodies, batches)
        seconds, cpu_s = perf_counter() - began, process_time() - cpu_s
        commits, size = node.log_commits.commits - commits, log.end_position - start
    floor_s = floor_seconds(folder, size, commits if dial == "always" else 1)
    count = batches * BATCH
    return Timed(count / seconds, 1e6 * cpu_s / count, commits, count / floor_s)


def floor_seconds(folder: Path, total_bytes: int, syncs: int) -> float:
    """Write so many bytes in as many parts, and sync each."""
    block = os.urandom(max(total_bytes // syncs, 1))
    began = perf_counter()
    fd = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY, 0o644)
    for _ in range(syncs):
        os.write(fd, block)
        os.fdatasync(fd)
    os.close(fd)
    return perf_counter() - began
