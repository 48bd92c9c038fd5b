"""Messages over ten years under a tight descriptor limit: a batch falls into a thousand hours.

What a folder per hour cannot carry: sends, disk and memory, kill -9 and the start after it, then a
day with a million messages. The broker may open 1,024 files. Its clock runs 26 hours behind until
that day comes, so all messages are sent to far hours, and all of a day's are split at once.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from broker_process import Brokers, ServerProcess
from clients import ask, ask_on, counts
from lateness import consume, lateness_figures
from load import LoadError
from sending import HOUR_MS, fill, timed_sends
from settings import INGEST_LANES, Settings
from tables import (
    Column,
    Table,
    Target,
    at_least,
    at_most,
    mebibytes,
    milliseconds,
    percent,
    rate,
    seconds,
    whole,
)
from workers import Worker, run_apart

HOURS: Final = 87_600
BATCH: Final = 1_000
DESCRIPTORS: Final = 1_024
FEW_FILES: Final = ("prlimit", f"--nofile={DESCRIPTORS}")
"""Runs another command under that limit."""
RESIDENT_MAX: Final = 300 << 20
TOPIC: Final = "t"
CLOCK: Final = "clock"
_BEHIND_MS: Final = 38 * HOUR_MS
_CHECKPOINT_S: Final = 10.0
_IDLE_S: Final = 30.0
# Single sends beside the bulk, one after the other with this pause.
_SINGLES_PAUSE_S: Final = 0.005
_DAY_MS: Final = 24 * HOUR_MS
_DAY_LEAD_S: Final = 15.0
_DAY_WATCHED_S: Final = 120.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Send, look at the disk, kill, start, look at the memory; then let the day come."""
    messages = settings.years_messages
    table = Table(
        f"years: {rate(messages)} messages evenly over ten years, {BATCH:,} a batch, "
        f"{DESCRIPTORS:,} descriptors",
        [
            Column("messages/s", "rate", rate),
            Column("single send p99.9 ms", "single_ms", milliseconds),
            Column("B a message", "bytes", whole),
            Column("inodes", "inodes", whole),
            Column("open files", "files", whole),
            Column("ready s", "ready_s", seconds),
            Column("idle", "idle", percent),
            Column("late p99 ms", "p99_ms", milliseconds),
            Column("late max ms", "max_ms", milliseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("private MiB", "rss_anon", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    with clock_behind(brokers, _BEHIND_MS) as (broker, folder):
        sent = _send(table, broker, folder, messages)
        _restart(table, broker, sent)
        _day(table, broker, folder, settings)
    return table


@contextmanager
def clock_behind(brokers: Brokers, behind_ms: int) -> Iterator[tuple[ServerProcess, Path]]:
    """A broker with few files whose clock runs behind, and the folder of its data and log."""
    with brokers.folder() as folder:
        clock = folder / CLOCK
        clock.write_text(str(-behind_ms))
        node = [sys.executable, "-m", "delaylog.broker.drills.faults.stepped_node", str(clock)]
        with Brokers([*FEW_FILES, *node], brokers.data_root).on(folder) as broker:
            yield broker, folder


def set_clock(broker: ServerProcess, folder: Path, ahead_ms: int = 0) -> None:
    """From now on its clock is right, or so far ahead."""
    (folder / CLOCK).write_text(str(ahead_ms))
    os.kill(broker.process_id, signal.SIGUSR2)


def of_process(broker: ServerProcess) -> tuple[dict[str, Any], list[Target]]:
    """What every row says of the broker: its files and its memory."""
    resident = broker.resident()
    figures = {
        "files": len(os.listdir(f"/proc/{broker.process_id}/fd")),
        "rss": resident.total,
        "rss_anon": resident.anonymous,
        "rss_peak": resident.peak,
    }
    return figures, [at_most(resident.peak, RESIDENT_MAX, "300 MiB")]


def _send(table: Table, broker: ServerProcess, folder: Path, messages: int) -> int:
    bulk = Worker(
        timed_sends,
        broker.port,
        broker.process_id,
        batch=BATCH,
        hours=HOURS,
        messages=messages,
        runs=1,
        lanes=INGEST_LANES,
    )
    try:
        singles_s = _singles(broker.port, bulk)
        run = bulk.result().value[0]
    finally:
        bulk.kill()
    sent = counts(broker.port, TOPIC)["waiting"]
    broker.settle(limit_s=120.0)
    size, inodes = _on_disk(folder / "data")
    single_ms = float(np.percentile(singles_s, 99.9)) * 1000
    figures, targets = of_process(broker)
    figures |= {
        "rate": run.rate,
        "single_ms": single_ms,
        "bytes": size / sent,
        "inodes": inodes,
    }
    targets = [
        at_least(run.rate, 150e3, "150 k/s"),
        at_most(single_ms, 50.0, "50 ms"),
        at_most(size / sent, 700, "700 B"),
        at_most(inodes, 300_000, "300,000 inodes"),
        *targets,
    ]
    table.add("sent", figures, targets)
    table.notes.append(f"{len(singles_s):,} single sends went out beside the bulk.")
    return sent


def _singles(port: int, beside: Worker[Any]) -> list[float]:
    """Seconds until each single send was answered, for as long as the other load runs."""
    took_s = []
    body = {"body": "x", "delay_ms": 2 * _DAY_MS}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        while beside.busy:
            begun = time.perf_counter()
            ask_on(connection, "POST", "/v1/topics/single/messages", body)
            took_s.append(time.perf_counter() - begun)
            time.sleep(_SINGLES_PAUSE_S)
    return took_s


def _restart(table: Table, broker: ServerProcess, sent: int) -> None:
    broker.kill()
    broker.start()
    ready_s = broker.ready_at - broker.started_at
    if (kept := counts(broker.port, TOPIC)["waiting"]) != sent:
        raise LoadError(f"{sent} messages were pending before the kill, {kept} after")
    broker.settle(limit_s=120.0)
    # The checkpoint of what was replayed comes seconds later.
    time.sleep(_CHECKPOINT_S)
    before_s, begun = broker.cpu_seconds(), time.monotonic()
    time.sleep(_IDLE_S)
    idle = (broker.cpu_seconds() - before_s) / (time.monotonic() - begun)
    _still_sends(broker.port)
    figures, targets = of_process(broker)
    figures |= {"ready_s": ready_s, "idle": idle}
    targets = [at_most(ready_s, 5.0, "5 s"), at_most(idle, 0.01, "1 % idle"), *targets]
    table.add("kill -9, restart", figures, targets)


def _still_sends(port: int) -> None:
    """A message that is due now comes at once."""
    ask(port, "POST", "/v1/topics/now/messages", {"body": "now", "delay_ms": 0})
    got = ask(port, "POST", "/v1/topics/now/receive", {"wait_ms": 5_000})
    if len(got["messages"]) != 1:
        raise LoadError(f"a message due now did not come: {got}")


def _day(table: Table, broker: ServerProcess, folder: Path, settings: Settings) -> None:
    """The clock steps to the day's first minute: its hours are split while messages fall due."""
    first_ms = int((time.time() + _DAY_LEAD_S) * 1000)
    many = settings.years_day_messages
    dues = np.random.default_rng(1).integers(first_ms, first_ms + _DAY_MS, many)
    run_apart(fill, broker.port, "day", dues)
    until_ms = first_ms + int(_DAY_WATCHED_S * 1000)
    set_clock(broker, folder)
    stepped_s = first_ms / 1000 - time.time()
    # What falls due after the watch is still asked for: a consumer stops at its end.
    received = run_apart(
        consume, broker.port, "day", expected=many, until=until_ms / 1000, lanes=1
    ).value
    lateness = lateness_figures(received, int((dues < until_ms - 1_000).sum()))
    if lateness["missing"] > 0:
        raise LoadError(f"{lateness['missing']} messages of the day did not come")
    figures, targets = of_process(broker)
    targets = [
        at_most(lateness["p99_ms"], 10.0, "10 ms p99"),
        at_most(lateness["early"], 0, "0 early"),
        *targets,
    ]
    table.add(f"a day of {rate(many)} comes", figures | lateness, targets)
    table.notes.append(
        f"The clock stepped {stepped_s:.0f} s before the day; {len(received.dues):,} messages of "
        f"its first {_DAY_WATCHED_S:.0f} s were watched."
    )


def _on_disk(folder: Path) -> tuple[int, int]:
    """(bytes in blocks, inodes) of everything below a folder."""
    size = inodes = 0
    for place, _, names in os.walk(folder):
        for name in ["", *names]:
            try:
                stat = os.stat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            size, inodes = size + stat.st_blocks * 512, inodes + 1
    return size, inodes
