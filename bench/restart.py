"""Restart after kill -9 with a backlog: how long until the first due delivery.

Just before the kill come a burst of pending messages (a log to replay) and two groups of due ones:
some fall due while the broker is dead, some shortly after it is back. Warm and cold: with its
files still in the page cache, and without (as after a reboot of a busy machine).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import numpy as np
from broker_process import ServerProcess
from clients import counts
from lateness import Received, consume
from load import LoadError
from memory import PENDING
from sending import fill
from settings import Settings
from tables import Column, Table, at_most, mebibytes, milliseconds, rate, seconds
from workers import run_apart

DUE_TOPIC: Final = "due"
OVERDUE: Final = 1_000
SOON: Final = 1_000
DEAD_S: Final = 2.0
# The second group falls due inside this window after the start.
SOON_S: Final = (1.0, 5.0)
GIVE_UP_S: Final = 60.0
FIRST_DELIVERY_S_MAX: Final = 3.0


def measure(broker: ServerProcess, folder: Path, settings: Settings, pending: int) -> Table:
    """Kill and restart a broker that holds `pending` messages, warm and cold."""
    table = Table(
        f"restart: kill -9 with {rate(pending)} pending over a day, "
        f"{rate(settings.restart_burst)} of them sent just before each kill",
        [
            Column("ready s", "ready_s", seconds),
            Column("first due s", "first_s", seconds),
            Column("all overdue s", "overdue_s", seconds),
            Column("due after: p99 ms", "p99_ms", milliseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
        notes=[
            "Seconds from starting the process to: its ready line, the first message that fell "
            "due while it was dead, the last of those in a consumer's hands."
        ],
    )
    held = pending
    for cold in (False, True):
        for number in range(settings.restarts):
            run_apart(fill, broker.port, PENDING.topic, PENDING.dues(settings.restart_burst))
            held += settings.restart_burst
            figures = _restart(broker, folder, cold=cold)
            kept = counts(broker.port, PENDING.topic)["waiting"]
            if kept != held:
                raise LoadError(f"{held} messages were pending before the kill, {kept} after")
            target = at_most(figures["first_s"], FIRST_DELIVERY_S_MAX, "3 s to first due")
            early = at_most(figures["early"], 0, "0 early")
            name = "cold" if cold else "warm"
            table.add(f"{name} page cache, {number + 1}", figures, [target, early])
    return table


def _restart(broker: ServerProcess, folder: Path, *, cold: bool) -> dict[str, float]:
    random = np.random.default_rng(7)
    if cold:
        # Most of the writing out happens here, so that little is left to do while it is dead.
        drop_page_cache(folder)
    now_ms = int(time.time() * 1000)
    dead_until_ms = now_ms + int(DEAD_S * 1000)
    start_ms = dead_until_ms + (3_000 if cold else 500)
    overdue = random.integers(now_ms + 700, dead_until_ms, OVERDUE)
    low, high = (start_ms + int(second * 1000) for second in SOON_S)
    run_apart(fill, broker.port, DUE_TOPIC, overdue)
    run_apart(fill, broker.port, DUE_TOPIC, random.integers(low, high, SOON))
    broker.kill()
    if time.time() * 1000 >= now_ms + 700:
        raise LoadError("sending took so long that messages fell due before the kill")
    if cold:
        drop_page_cache(folder)
    time.sleep(max(0.0, start_ms / 1000 - time.time()))
    started_ms = time.time() * 1000
    broker.start()
    ready_ms = time.time() * 1000
    received = run_apart(
        consume,
        broker.port,
        DUE_TOPIC,
        expected=OVERDUE + SOON,
        until=time.time() + GIVE_UP_S,
        lanes=2,
    ).value
    return _figures(broker, received, started_ms, ready_ms, dead_until_ms)


def _figures(
    broker: ServerProcess,
    received: Received,
    started_ms: float,
    ready_ms: float,
    dead_until_ms: int,
) -> dict[str, float]:
    if len(np.unique(received.refs)) != OVERDUE + SOON:
        raise LoadError(
            f"{len(np.unique(received.refs))} of {OVERDUE + SOON} due messages came back"
        )
    dead = received.dues < dead_until_ms
    if int(dead.sum()) > OVERDUE:
        raise LoadError("messages acked before an earlier kill came back")
    if int(dead.sum()) < OVERDUE:
        raise LoadError("the broker changed due times across the restart")
    # Only what fell due once the broker was ready tells of its lateness; the rest waited for it.
    after = received.dues > ready_ms
    late_ms = received.at_ms - received.dues
    resident = broker.resident()
    figures: dict[str, float] = {
        "ready_s": (ready_ms - started_ms) / 1000,
        "first_s": (float(received.at_ms[dead].min()) - started_ms) / 1000,
        "overdue_s": (float(received.at_ms[dead].max()) - started_ms) / 1000,
        "early": int((late_ms < 0).sum()),
        "rss": resident.total,
        "rss_peak": resident.peak,
    }
    if after.any():
        figures["p99_ms"] = float(np.percentile(late_ms[after], 99))
    return figures


def drop_page_cache(folder: Path) -> None:
    """Write out and forget the cached pages of every file below a folder."""
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # Only clean pages can be dropped.
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
