"""Timed and untimed bulk sending, shared by the sections.

Runs inside a worker process. The one rule: templates, due times and connections are ready before
the clock starts, and the server's processor time is read at the same two moments as the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import procfs
from clients import BareSender, BulkSender, DuePool
from load import Driver
from settings import BODY_BYTES, FILL_BATCH, FILL_LANES
from wire import SendTemplate, even_template

HOUR_MS = 3_600_000
# Due times repeat after this many messages; every batch size divides it.
POOL_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed run."""

    messages: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def server_us(self) -> float:
        """Server processor time per message in microseconds."""
        return self.server_cpu_s / self.messages * 1e6

    @property
    def client_us(self) -> float:
        """Client processor time per message in microseconds."""
        return self.client_cpu_s / self.messages * 1e6


class Stopwatch:
    """Clock and processor times over one window."""

    def __init__(self, server_id: int) -> None:
        self._server_id = server_id
        self._server_s = procfs.cpu_seconds(server_id)
        self._client_s = time.process_time()
        self._begun = time.perf_counter()

    def read(self, messages: int, *, ended: float | None = None) -> Timed:
        """The window so far, or up to an earlier moment of `time.perf_counter()`."""
        seconds = (ended or time.perf_counter()) - self._begun
        client_s = time.process_time() - self._client_s
        return Timed(
            messages, seconds, procfs.cpu_seconds(self._server_id) - self._server_s, client_s
        )


def spread_dues(count: int, hours: int, seed: int) -> npt.NDArray[np.int64]:
    """Random due times over whole hours, the first of them some hours off: nothing falls due."""
    first_ms = (int(time.time() * 1000) // HOUR_MS + 3) * HOUR_MS
    return np.random.default_rng(seed).integers(first_ms, first_ms + hours * HOUR_MS, count)


def timed_sends(
    port: int,
    server_id: int,
    *,
    batch: int,
    hours: int,
    messages: int,
    runs: int,
    lanes: int,
    bare: bool = False,
) -> list[Timed]:
    """Several timed runs of bulk sends after a short warm-up, on the same connections."""
    template = even_template("t", batch, BODY_BYTES)
    pool = DuePool(spread_dues(POOL_ROWS, hours, seed=batch + hours))
    batches = messages // batch
    kind = BareSender if bare else BulkSender
    results = []
    with Driver(port, lanes) as driver:
        driver.run(kind(template, pool, max(lanes, batches // 10)))
        for _ in range(runs):
            watch = Stopwatch(server_id)
            driver.run(kind(template, pool, batches))
            results.append(watch.read(batches * batch))
    return results


def fill(
    port: int,
    topic: str,
    dues: npt.NDArray[np.int64],
    *,
    template: SendTemplate | None = None,
    messages: int | None = None,
) -> float:
    """Send one message per due time (or `messages`, with the due times round and round); the
    seconds it took. The count is rounded down to whole batches, but is at least one."""
    total = len(dues) if messages is None else messages
    batch = template.n if template else min(FILL_BATCH, total)
    template = template or even_template(topic, batch, BODY_BYTES)
    with Driver(port, FILL_LANES) as driver:
        return driver.run(BulkSender(template, DuePool(dues), total // batch))
