"""Messages over ten years under a tight descriptor limit: every batch names a thousand hours.

What a folder per hour cannot carry: sending, disk and memory, then kill -9 and the start after it.
The broker may open 1,024 files.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from typing import Final

from broker_process import Brokers, ServerProcess
from clients import counts
from load import LoadError
from sending import timed_sends
from settings import INGEST_LANES, Settings
from tables import Column, Table, at_least, at_most, mebibytes, percent, rate, seconds, whole
from workers import run_apart

HOURS: Final = 87_600
BATCH: Final = 1_000
DESCRIPTORS: Final = 1_024
_IDLE_S: Final = 10.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Send, look at the disk, kill, start, look at the memory."""
    messages = settings.years_messages
    table = Table(
        f"years: {rate(messages)} messages evenly over ten years, {BATCH:,} a batch, "
        f"{DESCRIPTORS:,} descriptors",
        [
            Column("messages/s", "rate", rate),
            Column("B a message", "bytes", whole),
            Column("inodes", "inodes", whole),
            Column("open files", "files", whole),
            Column("ready s", "ready_s", seconds),
            Column("idle", "idle", percent),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    limited = Brokers(["prlimit", f"--nofile={DESCRIPTORS}", *brokers.program], brokers.data_root)
    with limited.folder() as folder, limited.on(folder) as broker:
        run = run_apart(
            timed_sends,
            broker.port,
            broker.process_id,
            batch=BATCH,
            hours=HOURS,
            messages=messages,
            runs=1,
            lanes=INGEST_LANES,
        ).value[0]
        sent = counts(broker.port, "t")["waiting"]
        broker.settle(limit_s=120.0)
        size, inodes = _on_disk(folder / "data")
        figures: dict[str, object] = {
            "rate": run.rate,
            "bytes": size / sent,
            "inodes": inodes,
            "files": len(os.listdir(f"/proc/{broker.process_id}/fd")),
            "rss": broker.resident().total,
            "rss_peak": broker.resident().peak,
        }
        targets = [
            at_least(run.rate, 150e3, "150 k/s"),
            at_most(size / sent, 700, "700 B"),
            at_most(inodes, 300_000, "300,000 inodes"),
            at_most(broker.resident().peak, 300 << 20, "300 MiB"),
        ]
        table.add("sent", figures, targets)
        _restart(table, broker, sent)
    return table


def _restart(table: Table, broker: ServerProcess, sent: int) -> None:
    broker.kill()
    broker.start()
    ready_s = broker.ready_at - broker.started_at
    if (kept := counts(broker.port, "t")["waiting"]) != sent:
        raise LoadError(f"{sent} messages were pending before the kill, {kept} after")
    broker.settle(limit_s=120.0)
    before_s, begun = broker.cpu_seconds(), time.monotonic()
    time.sleep(_IDLE_S)
    idle = (broker.cpu_seconds() - before_s) / (time.monotonic() - begun)
    _still_sends(broker.port)
    resident = broker.resident()
    figures: dict[str, object] = {
        "ready_s": ready_s,
        "idle": idle,
        "files": len(os.listdir(f"/proc/{broker.process_id}/fd")),
        "rss": resident.total,
        "rss_peak": resident.peak,
    }
    targets = [
        at_most(ready_s, 5.0, "5 s"),
        at_most(idle, 0.01, "1 % idle"),
        at_most(resident.peak, 300 << 20, "300 MiB"),
    ]
    table.add("kill -9, restart", figures, targets)


def _still_sends(port: int) -> None:
    """A message that is due now comes at once."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    head = {"Content-Type": "application/json"}
    body = json.dumps({"body": "now", "delay_ms": 0})
    connection.request("POST", "/v1/topics/now/messages", body, head)
    connection.getresponse().read()
    ask = json.dumps({"wait_ms": 5_000})
    connection.request("POST", "/v1/topics/now/receive", ask, head)
    got = json.loads(connection.getresponse().read())
    if len(got["messages"]) != 1:
        raise LoadError(f"a message due now did not come: {got}")
    connection.close()


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
