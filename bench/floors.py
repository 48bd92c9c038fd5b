"""What this machine can do at all, measured in the same run as everything else.

Sequential write + fdatasync in the data root, and three servers that only read a request: figures
of the broker mean little without them, since disks and shared processors differ from hour to
hour. Nothing here knows the broker.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import procfs
from broker_process import ServerProcess
from rounds import Endpoint, fixed, timed_round
from sending import Timed
from settings import BODY_BYTES, SINGLES_LANES, Settings
from tables import Column, Table, microseconds, milliseconds, rate
from wire import json_request
from workers import run_apart

CHUNKS: Final = (4 << 10, 128 << 10, 1 << 20)
# The file is written over and over within this size, so that a floor needs little disk.
FILE_BYTES_MAX: Final = 512 << 20
SINGLE_PATH: Final = "/v1/topics/t/messages"


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors other sections set their figures against."""

    table: Table
    # Bytes per second of 1 MiB writes, each followed by fdatasync.
    disk_bytes_per_s: float


def measure(settings: Settings, data_root: Path) -> Floors:
    """All floors of this machine and this data root."""
    table = Table(
        "floors: what the machine gives",
        [
            Column("per second", "rate", rate),
            Column("MB/s", "megabytes_per_s", lambda value: f"{value:,.0f}"),
            Column("median ms", "p50_ms", milliseconds),
            Column("p99 ms", "p99_ms", milliseconds),
            Column("server CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
        ],
    )
    disk = 0.0
    for chunk in CHUNKS:
        laps_s = synced_writes(data_root, chunk, settings.floor_s)
        per_second = len(laps_s) / float(laps_s.sum())
        disk = per_second * chunk
        table.add(
            f"write + fdatasync, {chunk >> 10} KiB",
            {
                "rate": per_second,
                "megabytes_per_s": disk / 1e6,
                "p50_ms": float(np.median(laps_s)) * 1e3,
                "p99_ms": float(np.percentile(laps_s, 99)) * 1e3,
            },
        )
    for case, kind in (
        ("asyncio Protocol, 50 connections", "protocol"),
        ("bare aiohttp web.Server", "low-level"),
        ("bare aiohttp web.Application", "application"),
    ):
        with bare_server(kind) as server:
            timed, latencies_s = run_apart(
                timed_singles, server.port, server.process_id, seconds=settings.floor_s
            ).value
        table.add(case, single_figures(timed, latencies_s))
    return Floors(table, disk)


def synced_writes(
    folder: Path, chunk: int, seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How long each write + fdatasync of a growing file took."""
    block = os.urandom(chunk)
    path = folder / f"delaylog-bench-floor-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    laps: list[float] = []
    try:
        written = 0
        deadline = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < deadline:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            laps.append(time.perf_counter() - begun)
            written += chunk
            if written >= FILE_BYTES_MAX:
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                written = 0
    finally:
        os.close(descriptor)
        path.unlink()
    return np.array(laps)


@contextmanager
def bare_server(kind: str, *arguments: str) -> Iterator[ServerProcess]:
    """One of the bare servers of bare_server.py, running."""
    program = Path(__file__).with_name("bare_server.py")
    with ServerProcess([sys.executable, str(program), kind, *arguments]) as server:
        yield server


def timed_singles(
    port: int, server_id: int, *, seconds: float, lanes: int = SINGLES_LANES
) -> tuple[Timed, list[float]]:
    """Single sends as JSON on many connections for a while, and how long each answer took."""
    run = timed_round(
        fixed(Endpoint(port, server_id), single_requests(SINGLE_PATH), lanes), seconds
    )
    return run.timed, (run.latencies_ms / 1e3).tolist()


def single_requests(path: str) -> list[bytes]:
    """Single sends as JSON, due in an hour and more."""
    first_ms = int(time.time() * 1000) + 3_600_000
    return [
        json_request(
            path,
            b'{"body":"%b","deliver_at_ms":%d}' % (b"x" * BODY_BYTES, first_ms + step * 1_000),
        )
        for step in range(1_024)
    ]


def single_figures(timed: Timed, latencies_s: list[float]) -> dict[str, float]:
    """The figures of a run of single sends."""
    p50, p99 = np.percentile(latencies_s, (50, 99)) * 1e3
    return {
        "rate": timed.rate,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "server_us": timed.server_us,
        "client_us": timed.client_us,
    }


def machine(data_root: Path) -> list[str]:
    """The machine in words."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    kind = procfs.file_system_of(data_root)
    lines = [
        f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load before "
        f"{os.getloadavg()[0]:.2f}",
        f"data root on {kind}",
    ]
    if kind in ("tmpfs", "ramfs"):
        lines.append("WARNING: the data root is memory: fdatasync costs nothing here (--data-root)")
    return lines
