"""The embedded broker: send + receive + ack in batches, at each fsync dial, beside the floor.

Each batch is sent as columns, received whole and acked. `in turn` waits for each call; `overlapped`
sends a batch while the acks of the one before are not waited for, and keeps a few batches ahead, so
that the disk works while the next ones are decided. The floor writes and syncs the same bytes to a
file of its own: once a batch, and once for as many batches as were committed together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections import deque
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt

import delaylog

Texts = tuple[npt.NDArray[np.int64], bytes]
"""Sizes, and all bodies as one block."""

AHEAD = 4
"""Batches that are sent before the first of them is received, when calls overlap."""


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
        received = broker.receive_columns("t", max=n, wait_ms=10_000)
        broker.ack(received, wait=False)
        done += received.columns.n
        while ahead and done >= (sent - len(ahead) + 1) * n:
            ahead.popleft()
    broker.flush()


def floor_seconds(folder: Path, total_bytes: int, syncs: int) -> float:
    """Write so many bytes and sync them so often."""
    block = os.urandom(max(total_bytes // syncs, 1))
    began = perf_counter()
    fd = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY, 0o644)
    for _ in range(syncs):
        os.write(fd, block)
        os.fdatasync(fd)
    os.close(fd)
    return perf_counter() - began


def run(args: argparse.Namespace) -> None:
    """Measure and print a table."""
    bodies: Texts = (np.full(args.batch, args.size), os.urandom(args.size * args.batch))
    print(
        f"{args.batches} batches of {args.batch:,} messages of {args.size} B, median of {args.runs}"
    )
    print(
        "fsync     how         messages/s  CPU us/message  commits  log MB  "
        "floor: a batch | as committed"
    )
    for dial in args.fsync:
        for how in (in_turn, overlapped):
            rates, cpus, floors, commits, size = [], [], [], 0, 0
            for _ in range(args.runs):
                folder = Path(tempfile.mkdtemp(dir=args.folder))
                with delaylog.open(folder / "data", fsync=dial) as broker:
                    how(broker, bodies, 20)
                    log, before = broker._node.engine.state.log, broker._node.commits.commits
                    start, cpu, began = log.end_position, process_time(), perf_counter()
                    how(broker, bodies, args.batches)
                    seconds = perf_counter() - began
                    cpu = process_time() - cpu
                    commits, size = broker._node.commits.commits - before, log.end_position - start
                count = args.batches * args.batch
                rates.append(count / seconds)
                cpus.append(cpu / count * 1e6)
                each = floor_seconds(folder, size, args.batches)
                shared = floor_seconds(folder, size, max(commits, 1))
                floors.append((count / each, count / shared))
                shutil.rmtree(folder)
            each, shared = (median(column) for column in zip(*floors, strict=True))
            print(
                f"{dial:9} {how.__name__:11} {median(rates):>10,.0f}  {median(cpus):>14.2f}  "
                f"{commits:>7,}  {size / 1e6:>6.0f}  {each:>14,.0f} | {shared:,.0f}"
                f"   ({min(rates):,.0f} to {max(rates):,.0f})"
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fsync", nargs="+", default=["always", "everysec", "never"])
    parser.add_argument("--folder", default=None, help="where the folders are made")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
