"""A million schedules: `python bench/schedules.py [COUNT]`, minutes; memory, starts, lateness.

A folder of daily schedules, spread over the seconds of the day, is made in this process, as a
broker makes it. Then a server serves it. For a minute it fires, while ordinary messages are sent
that are due in the same seconds; one consumer receives both on long polls. Lateness is what the
consumer sees, so the two are to be compared with each other.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import gettempdir
from typing import Any, Final

import numpy as np
from broker_process import Brokers, broker_program
from tables import mebibytes

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.schedules.commands import put_schedule
from delaylog.broker.engine.setup import Setup
from delaylog.client import Client
from delaylog.storage.files.os_file_system import OsFileSystem

COUNT: Final = 1_000_000
BODY: Final = b"x" * 100
WRITE_EVERY: Final = 1_000
CHECKPOINT_EVERY: Final = 100_000
SECONDS: Final = 60
AHEAD_MS: Final = 3_000
RESIDENT_MAX: Final = 300 << 20


def now_ms() -> int:
    """The time in Unix ms."""
    return time.time_ns() // 1_000_000


def timed(what: str, act: Callable[[], Any]) -> Any:
    """Print how long something takes."""
    began = time.perf_counter()
    out = act()
    print(f"{what}: {time.perf_counter() - began:.2f} s", flush=True)
    return out


def make_folder(folder: Path, count: int) -> None:
    """The schedules of one topic."""
    random = Random(1)
    folder.mkdir()
    engine = Engine(OsFileSystem(), str(folder), Setup(Random()), now_ms=now_ms())
    state, topic = engine.state, engine.make_topic("t", now_ms())
    for number in range(count):
        second = random.randrange(86_400)
        cron = f"{second % 60} {second // 60 % 60} {second // 3600} * * *"
        put_schedule(state, topic, f"s{number}", {"cron": cron}, BODY, now_ms())
        if number % WRITE_EVERY == 0:
            state.log.write_pending()
        if number % CHECKPOINT_EVERY == 0:
            engine.run_inline(engine.upkeep.checkpoint(now_ms))
    timed("last checkpoint of the puts", lambda: checkpoint(engine))
    put_schedule(state, topic, "s0", {"cron": "0 0 1 1 *"}, BODY, now_ms())
    timed("checkpoint with one change", lambda: checkpoint(engine))
    engine.close()


def checkpoint(engine: Engine) -> None:
    """Take one at once."""
    engine.run_inline(engine.upkeep.checkpoint(now_ms))


def consume(url: str, until: float, late: dict[bool, list[float]]) -> None:
    """Note the lateness of each message: True for firings."""
    begun_ms = now_ms() + AHEAD_MS
    with Client(url) as client:
        while time.time() < until:
            messages = client.receive("t", max=1_000, wait_ms=500)
            at = time.time() * 1_000
            for message in messages:
                if message.deliver_at_ms < begun_ms:
                    # Left over from the time in which nothing fired.
                    continue
                late["@" in message.id].append(at - message.deliver_at_ms)
            if messages:
                client.ack(messages)


def produce(url: str, until: float) -> None:
    """Messages that are due at whole seconds, as firings are."""
    with Client(url) as client:
        while time.time() < until - AHEAD_MS / 1_000:
            due_ms = (now_ms() + AHEAD_MS) // 1_000 * 1_000
            for _ in range(12):
                client.send("t", BODY, deliver_at_ms=due_ms)
            time.sleep(1)


def main(count: int) -> None:
    """Measure and print."""
    brokers = Brokers(broker_program(), Path(gettempdir()))
    with brokers.folder() as folder:
        timed(f"{count:,} puts", lambda: make_folder(folder / "data", count))
        with brokers.on(folder, "--insecure=no-auth") as server:
            url = f"http://127.0.0.1:{server.port}"
            print(f"open: {server.ready_at - server.started_at:.2f} s")
            print(f"resident after the start: {mebibytes(server.resident().total)} MiB", flush=True)
            until, late = time.time() + SECONDS, dict[bool, list[float]]()
            late |= {True: [], False: []}
            threads = [
                threading.Thread(target=consume, args=(url, until, late)),
                threading.Thread(target=produce, args=(url, until)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for what, firings in (("firings", True), ("ordinary messages", False)):
                p50, p99 = np.percentile(late[firings], [50, 99])
                few = min(late[firings])
                print(
                    f"lateness of {len(late[firings])} {what}: p50 {p50:.1f}, p99 {p99:.1f} ms, "
                    f"least {few:.1f} ms"
                )
            resident = server.resident()
            print(f"resident: {mebibytes(resident.total)} MiB, at most {mebibytes(resident.peak)}")
            if resident.peak > RESIDENT_MAX:
                print("more than 300 MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
