"""Resident size and cost a message as the backlog grows: pending over a day, and ready unasked.

One broker is loaded in stages; at each it is left to settle and read. What should not grow is
compared with the first stage. VmRSS counts mapped file pages too, so its parts are shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import procfs
from broker_process import ServerProcess
from clients import ask, counts
from drain import drain
from load import LoadError
from sending import POOL_ROWS, fill
from tables import (
    Column,
    Table,
    Target,
    at_most,
    mebibytes,
    median,
    microseconds,
    milliseconds,
    rate,
    whole,
)
from workers import run_apart

RESIDENT_MAX = 300 << 20
GROWTH_MAX = 1.2
PURGE_MS_MAX = 100.0
BASE_MESSAGES_MIN = 1_000_000
# At rest: no change for this long. Files are synced, and freed memory goes back, meanwhile.
AT_REST_S = 6.0
AT_REST_BYTES = 1 << 20
PROBE_RUNS = 5
DAY_MS = 24 * 3_600_000
# The first message is due this much after loading began; a bench that takes longer says so.
FIRST_DUE_MS = 30 * 60_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is loaded: how to make its due times, in which topic, and the state they end up in."""

    title: str
    topic: str
    dues: Callable[[int], npt.NDArray[np.int64]]
    states: Sequence[str]


def _over_a_day(count: int) -> npt.NDArray[np.int64]:
    first_ms = int(time.time() * 1000) + FIRST_DUE_MS
    return np.random.default_rng(count).integers(first_ms, first_ms + DAY_MS, count)


def _already(count: int) -> npt.NDArray[np.int64]:
    return np.full(count, int(time.time() * 1000), np.int64)


PENDING = Backlog("pending, spread over a day", "pending", _over_a_day, ("waiting",))
READY = Backlog("ready, no consumer", "ready", _already, ("ready",))


def measure(
    broker: ServerProcess,
    folder: Path,
    stages: Sequence[int],
    settle_s: float,
    backlog: Backlog,
    probe: int,
) -> Table:
    """Load one broker stage by stage and read it at each; `probe` = messages of one more load."""
    table = Table(
        f"memory: {backlog.title}",
        [
            Column("messages", "messages", whole),
            Column("loaded at /s", "rate", rate),
            Column("in all us", "server_us", microseconds),
            Column("one more us", "probe_us", microseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("anon", "anonymous", mebibytes),
            Column("file", "file", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
            Column("disk MiB", "disk", mebibytes),
            Column("purge ms", "purge_ms", milliseconds),
        ],
        notes=[
            "In all us: server CPU a message of this stage, until it was quiet again, much of it "
            "the kernel's for writing to disk. One more us: server CPU of a message of another "
            "topic that is sent, handed out and acked while all of it is there, median of "
            f"{PROBE_RUNS} times {probe:,}. Sizes are read at rest (unchanged for "
            f"{AT_REST_S:.0f} s); the peak is of the loading."
        ],
    )
    idle = broker.resident()
    table.add(
        "empty",
        {
            "messages": 0,
            "rss": idle.total,
            "anonymous": idle.anonymous,
            "file": idle.file,
            "rss_peak": idle.peak,
        },
    )
    base: dict[str, float] = {}
    loaded = 0
    for stage in stages:
        figures = _load(broker, folder, backlog, stage - loaded, settle_s) | {"messages": stage}
        loaded = stage
        kept = sum(counts(broker.port, backlog.topic)[state] for state in backlog.states)
        if kept != loaded:
            raise LoadError(f"{loaded} messages were accepted, the broker counts {kept}")
        # What the load left in the page cache is written now: that work belongs to the load, and
        # the probe would wait for it inside the kernel.
        os.sync()
        figures["probe_us"] = _one_more(broker, stage, probe, settle_s)
        targets: list[Target] = [at_most(figures["rss"], RESIDENT_MAX, "300 MiB")]
        if base:
            growth = figures["rss"] / base["rss"]
            cost = figures["probe_us"] / base["probe_us"]
            figures |= {"growth": growth, "cost_ratio": cost}
            # A small first stage is no base: buffers are still filling, CPU is a few ticks.
            judged = base["messages"] >= BASE_MESSAGES_MIN
            targets += [
                at_most(growth if judged else None, GROWTH_MAX, f"1.2 x RSS (is {growth:.2f})"),
                at_most(cost if judged else None, GROWTH_MAX, f"1.2 x one more (is {cost:.2f})"),
            ]
        else:
            base = figures
        table.add(f"{rate(stage)} {backlog.topic}", figures, targets)
    took_ms = _purge(broker.port, backlog.topic, loaded)
    table.add(
        f"purge of {rate(loaded)}",
        {"messages": loaded, "purge_ms": took_ms},
        [at_most(took_ms, PURGE_MS_MAX, "100 ms")],
    )
    return table


def _purge(port: int, topic: str, expected: int) -> float:
    """Purge a topic; how long the answer took, in milliseconds."""
    begun = time.perf_counter()
    answer = ask(port, "POST", f"/v1/topics/{topic}/purge", {})
    took_ms = (time.perf_counter() - begun) * 1000
    if answer["purged"] != expected:
        raise LoadError(f"of {expected} messages {answer['purged']} were purged")
    return took_ms


def at_rest(broker: ServerProcess, limit_s: float) -> procfs.Resident:
    """Its size once that has stopped changing."""
    deadline = time.monotonic() + limit_s
    resident, since = broker.resident(), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < AT_REST_S:
        time.sleep(0.5)
        now = broker.resident()
        if abs(now.total - resident.total) > AT_REST_BYTES:
            resident, since = now, time.monotonic()
    return broker.resident()


def _one_more(broker: ServerProcess, stage: int, probe: int, settle_s: float) -> float:
    """Server CPU of a message from send to ack beside the backlog, in microseconds."""
    found = []
    for number in range(PROBE_RUNS):
        topic = f"one-more-{stage}-{number}"
        before_s = broker.cpu_seconds()
        run_apart(fill, broker.port, topic, _already(min(probe, POOL_ROWS)), messages=probe)
        run_apart(drain, broker.port, broker.process_id, topic, probe)
        broker.settle(limit_s=settle_s)
        found.append((broker.cpu_seconds() - before_s) / probe * 1e6)
    return median(found)


def _load(
    broker: ServerProcess, folder: Path, backlog: Backlog, messages: int, settle_s: float
) -> dict[str, float]:
    before_s = broker.cpu_seconds()
    seconds = run_apart(
        fill, broker.port, backlog.topic, backlog.dues(min(messages, POOL_ROWS)), messages=messages
    ).value
    broker.settle(limit_s=settle_s)
    resident = at_rest(broker, settle_s)
    return {
        "rate": messages / seconds,
        "server_us": (broker.cpu_seconds() - before_s) / messages * 1e6,
        "rss": resident.total,
        "anonymous": resident.anonymous,
        "file": resident.file,
        "rss_peak": resident.peak,
        "disk": procfs.tree_bytes(folder),
    }
