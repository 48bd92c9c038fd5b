"""Resident size under long leases: receive and ack of one message each, minute after minute.

Each message is taken under a lease of twelve hours and acked at once, so what a broker keeps for a
lease until its deadline would pile up. Every minute begins with a fill of as many messages as the
last one took. The first minute warms caches, so growth is counted from its end.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
from broker_process import Brokers
from clients import Consumer
from load import Driver
from sending import fill
from settings import Settings
from tables import Column, Table, at_most, mebibytes, rate, times
from workers import run_apart

LEASE_MS: Final = 12 * 3_600_000
LANES: Final = 16
FIRST_FILL: Final = 200_000
GROWTH_MAX: Final = 1.05
TOPIC: Final = "long-leases"


def measure(brokers: Brokers, settings: Settings) -> Table:
    """One broker, so many minutes."""
    table = Table(
        f"leases: receive + ack of one message each under 12 h leases, {LANES} connections",
        [
            Column("receive + ack/s", "rate", rate),
            Column("RSS MiB", "rss", mebibytes),
            Column("private MiB", "rss_anon", mebibytes),
            Column("x minute 1", "growth", times),
        ],
    )
    first = 0
    backlog, taken = 0, FIRST_FILL
    with brokers.fresh() as broker:
        for minute in range(1, settings.lease_minutes + 1):
            until = time.time() + 60.0
            if backlog < 2 * taken:
                more = 2 * taken - backlog
                dues = np.full(more, int(time.time() * 1000), np.int64)
                run_apart(fill, broker.port, TOPIC, dues)
                # The count is rounded down to whole batches; what is missing is not missed.
                backlog += more
            begun = time.time()
            taken = run_apart(_take, broker.port, until).value
            backlog -= taken
            resident = broker.resident()
            first = first or resident.total
            growth = resident.total / first
            figures = {
                "rate": taken / (time.time() - begun),
                "rss": resident.total,
                "rss_anon": resident.anonymous,
                "growth": growth,
            }
            last = minute == settings.lease_minutes
            targets = [at_most(growth, GROWTH_MAX, f"{GROWTH_MAX} x")] if last else []
            table.add(f"after minute {minute}", figures, targets)
    return table


def _take(port: int, until: float) -> int:
    taker = Consumer(TOPIC, target=1 << 40, rows_max=1, wait_ms=200, until=until, lease_ms=LEASE_MS)
    with Driver(port, LANES) as driver:
        driver.run(taker)
    return taker.acked
