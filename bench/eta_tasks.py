"""Celery tasks with an ETA: the memory of a worker and of its broker, on Redis and on delaylog.

    make bench-eta                                           # 10,000 and 100,000 tasks, minutes
    .venv/bin/python bench/eta_tasks.py --tasks 10M --only delaylog

Each case is a new broker and one worker of Celery as it comes (prefork, one child). All tasks are
due in a day. Celery sends one; the others are copies of what that has stored, with ids of their
own, sent in bulk, because Celery sends about a thousand a second. Sizes are resident sizes, read
when the worker has taken all that it takes and the sizes are at rest. Then a hundred tasks with
ETAs some seconds ahead show how late a task begins while the others wait.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import procfs
import redis
from broker_process import Brokers, ServerProcess, broker_program
from redis_peer import RedisProcess, reference_programs
from tables import Column, Table, mebibytes, milliseconds, rate, whole

from delaylog import Client, PlainClient

HERE: Final = Path(__file__).parent
CLIENTS: Final = HERE.parent / ".venv-redis" / "bin"
QUEUE: Final = "celery"
AHEAD_S: Final = timedelta(days=1).total_seconds()
CHUNK: Final = 1_000
BULK: Final = 20_000
STARTED_WITHIN_S: Final = 120.0
TAKEN_WITHIN_S: Final = 3_600.0
# At rest: sizes that change by less than this in that time.
AT_REST_BYTES: Final = 1 << 20
AT_REST_S: Final = 6.0
TIMED: Final = 100
TIMED_FIRST_S: Final = 5.0
TIMED_APART_S: Final = 0.05
TIMED_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A task as Celery has stored it: copies have other ids and delivery tags."""

    text: str

    def copies(self, count: int) -> Iterator[tuple[str, str]]:
        """Ids and texts of `count` other tasks."""
        message = json.loads(self.text)
        task_id = message["headers"]["id"]
        parts = [part.split(task_id) for part in self.text.split(_tag(message))]
        for _ in range(count):
            new = str(uuid4())
            yield new, str(uuid4()).join(new.join(part) for part in parts)


def _tag(message: dict[str, Any]) -> str:
    return str(message["properties"]["delivery_tag"])


class Backlog(ABC):
    """A broker, and the tasks in it."""

    name: str

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    @property
    @abstractmethod
    def url(self) -> str:
        """The broker URL for Celery."""

    @abstractmethod
    def fill(self, count: int) -> None:
        """Store `count` copies of the one task that is there."""

    @abstractmethod
    def held(self) -> int:
        """How many tasks a worker has."""

    @abstractmethod
    def is_taken(self, count: int) -> bool:
        """Whether a worker has all that it takes of `count` tasks."""


class OnRedis(Backlog):
    """redis-server 7.0.15, whose append-only file is synced every second."""

    name = "redis-server"

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        super().__init__(server, folder)
        self._client = redis.Redis(port=server.port, socket_timeout=60)

    @property
    def url(self) -> str:
        """The broker URL for Celery."""
        return f"redis://127.0.0.1:{self.server.port}/0"

    def fill(self, count: int) -> None:
        """Store `count` copies of the one task that is there."""
        (raw,) = self._client.lrange(QUEUE, 0, -1)
        texts = (text for _, text in Stored(raw.decode()).copies(count))
        while chunk := list(islice(texts, CHUNK)):
            self._client.lpush(QUEUE, *chunk)

    def held(self) -> int:
        """How many tasks a worker has."""
        return int(self._client.hlen("unacked"))

    def is_taken(self, count: int) -> bool:
        """A worker takes every task, whatever its ETA."""
        return self.held() == count


class OnDelaylog(Backlog):
    """delaylog, which answers a send when it is synced."""

    name = "delaylog"

    @property
    def url(self) -> str:
        """The broker URL for Celery."""
        return f"delaylog://127.0.0.1:{self.server.port}/default"

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def fill(self, count: int) -> None:
        """Store `count` copies of the one task that is there."""
        with Client(self._address) as client:
            (info,) = client.browse(QUEUE, bodies=True)
        assert info.body is not None
        copies = Stored(info.body.decode()).copies(count)
        with PlainClient(self._address) as plain:
            while chunk := list(islice(copies, BULK)):
                ids, texts = zip(*chunk, strict=True)
                plain.send_bulk(
                    QUEUE,
                    list(texts),
                    ids=list(ids),
                    tags=[info.tags] * len(chunk),
                    merge="replace",
                    deliver_at_ms=info.deliver_at_ms,
                )

    def held(self) -> int:
        """How many tasks a worker has."""
        return self._counts().leased

    def is_taken(self, count: int) -> bool:
        """A worker takes nothing before it is due."""
        counts = self._counts()
        return (counts.waiting, counts.leased) == (count, 0)

    def _counts(self) -> Any:
        with Client(self._address) as client:
            return client.stats(QUEUE).counts


@contextmanager
def redis_backlog(brokers: Brokers) -> Iterator[Backlog]:
    """A new redis-server."""
    with brokers.folder() as folder, RedisProcess(reference_programs(), folder) as server:
        yield OnRedis(server, folder)


@contextmanager
def delaylog_backlog(brokers: Brokers) -> Iterator[Backlog]:
    """A new broker of ours."""
    with brokers.folder() as folder, brokers.on(folder) as server:
        yield OnDelaylog(server, folder)


BACKLOGS: Final = {OnRedis.name: redis_backlog, OnDelaylog.name: delaylog_backlog}


class Celery:
    """Celery's worker and sender, in the environment that has them."""

    def __init__(self, clients: Path, backlog: Backlog) -> None:
        self._clients = clients
        self._folder = backlog.folder
        self._late_file = backlog.folder / "late"
        self._environment = {
            **os.environ,
            "BROKER_URL": backlog.url,
            "LATE_FILE": str(self._late_file),
            "PYTHONPATH": str(HERE),
        }

    def send(self, *arguments: object) -> None:
        """Send what eta_app.py does with these arguments."""
        subprocess.run(
            [self._clients / "python", HERE / "eta_app.py", *map(str, arguments)],
            env=self._environment,
            check=True,
        )

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that is ready."""
        log_path = self._folder / "worker.log"
        command = [self._clients / "celery", "-A", "eta_app", "worker", "--concurrency", "1"]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--loglevel", "INFO"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: b" ready." in log_path.read_bytes()[-65_536:], STARTED_WITHIN_S)
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def lateness_ms(self) -> list[float]:
        """How late each of a hundred tasks began."""
        self.send("timed", TIMED, TIMED_FIRST_S, TIMED_APART_S)
        wait_until(lambda: len(self._late()) == TIMED, TIMED_WITHIN_S)
        return self._late()

    def _late(self) -> list[float]:
        text = self._late_file.read_text() if self._late_file.exists() else ""
        return [float(line) for line in text.splitlines()]


def wait_until(probe: Callable[[], bool], limit_s: float) -> None:
    """Return once the probe is true. Raises TimeoutError."""
    until_s = time.monotonic() + limit_s
    while not probe():
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(0.25)


def at_rest(server_id: int, worker_id: int) -> tuple[procfs.Resident, procfs.Resident]:
    """The sizes of both processes once they have stopped changing."""
    sizes, since_s = (procfs.resident(server_id), procfs.resident(worker_id)), time.monotonic()
    while time.monotonic() - since_s < AT_REST_S:
        time.sleep(0.5)
        now = (procfs.resident(server_id), procfs.resident(worker_id))
        if any(abs(a.total - b.total) > AT_REST_BYTES for a, b in zip(now, sizes, strict=True)):
            sizes, since_s = now, time.monotonic()
    return sizes


def measure(backlog: Backlog, celery: Celery, count: int) -> dict[str, float]:
    """One case: `count` tasks, the first sent by Celery."""
    celery.send("one", AHEAD_S)
    begun_s = time.monotonic()
    backlog.fill(count - 1)
    filled_s = time.monotonic()
    backlog.server.settle(limit_s=120)
    queued = backlog.server.resident()
    started_s = time.monotonic()
    with celery.worker() as worker:
        wait_until(lambda: backlog.is_taken(count), TAKEN_WITHIN_S)
        taken_s = time.monotonic()
        broker, resident = at_rest(backlog.server.process_id, worker.pid)
        held = backlog.held()
        late = celery.lateness_ms()
    return {
        "tasks": count,
        "fill_rate": (count - 1) / (filled_s - begun_s),
        "queued": queued.total,
        "held": held,
        "taken_s": taken_s - started_s,
        "worker": resident.total,
        "broker": broker.total,
        "broker_anonymous": broker.anonymous,
        "disk": procfs.tree_bytes(backlog.folder),
        "late_p50": float(np.percentile(late, 50)),
        "late_p99": float(np.percentile(late, 99)),
        "early": sum(each < 0 for each in late),
    }


def main() -> None:
    """Measure what the arguments say and print one table."""
    options = _options()
    table = Table(
        "Celery tasks that are due in a day",
        [
            Column("tasks", "tasks", whole),
            Column("bulk sends /s", "fill_rate", rate),
            Column("in the worker", "held", whole),
            Column("after s", "taken_s", whole),
            Column("worker MiB", "worker", mebibytes),
            Column("broker MiB, no worker yet", "queued", mebibytes),
            Column("broker MiB", "broker", mebibytes),
            Column("anon", "broker_anonymous", mebibytes),
            Column("disk MiB", "disk", mebibytes),
            Column("late p50 ms", "late_p50", milliseconds),
            Column("p99 ms", "late_p99", milliseconds),
            Column("early", "early", whole),
        ],
    )
    brokers = Brokers(broker_program(), options.data_root)
    for count in options.tasks:
        for name in options.only:
            with BACKLOGS[name](brokers) as backlog:
                figures = measure(backlog, Celery(options.clients, backlog), count)
            table.add(name, figures)
            print(name, json.dumps(figures), file=sys.stderr, flush=True)
    print(*table.lines(), sep="\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=_amounts, default=[10_000, 100_000], metavar="10k,100k")
    parser.add_argument("--only", choices=BACKLOGS, nargs="+", default=list(BACKLOGS))
    parser.add_argument("--clients", type=Path, default=CLIENTS, help=f"(default {CLIENTS})")
    parser.add_argument("--data-root", type=Path, default=Path("/var/tmp"))
    return parser.parse_args()


def _amounts(text: str) -> list[int]:
    factors = {"k": 1_000, "M": 1_000_000}
    return [int(float(word.rstrip("kM")) * factors.get(word[-1], 1)) for word in text.split(",")]


if __name__ == "__main__":
    main()
