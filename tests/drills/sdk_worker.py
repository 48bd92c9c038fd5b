"""A worker that is there to be killed: it writes down what its handlers do, as they do it.

    python tests/drills/sdk_worker.py {tasks,threads} URL JOURNAL LEASE_MS SEED PLANT

The journal is a history: a delivery when a handler begins, an ack or a nack, of which nobody knows
whether it came to be, when it has done its work. Each line is on its way to the file before the
handler goes on, so that what stands there was done. PLANT is `none`, or a wrong worker: `early-ack`
acks first, `count-all` begins attempts as it receives messages.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from sdk_history import SdkHistory, now_ms

from delaylog.client import AsyncClient, Client, Message
from delaylog.client.workers import Retry
from delaylog.client.workers.intake import BeginningDesk

TOPIC: Final = "killed"
QUICK_S: Final = (0.0, 0.03)
SLOW_SHARE: Final = 0.05
SLOW_LEASES: Final = 1.3
"""What takes longer than its lease has to have it extended."""
RETRY_SHARE: Final = 0.05
EARLY_ACK: Final = "early-ack"
COUNT_ALL: Final = "count-all"
POISON: Final = b"-poison"
"""The end of bodies whose handler always fails."""


class Work:
    """What a handler does, in words of the journal."""

    def __init__(self, journal: SdkHistory, lease_ms: int, seed: str) -> None:
        self.journal = journal
        self.lease_ms = lease_ms
        self._random = Random(seed)

    def begin(self, message: Message) -> float:
        """It has begun; the seconds it takes."""
        self.journal.delivered(message, self.lease_ms)
        if self._random.random() < SLOW_SHARE:
            return SLOW_LEASES * self.lease_ms / 1000
        return self._random.uniform(*QUICK_S)

    def end(self, message: Message) -> None:
        """It has done its work, or raises."""
        if message.body.endswith(POISON):
            self.journal.settled("nack", [message], now_ms())
            raise RuntimeError("this one never works")
        if self._random.random() < RETRY_SHARE:
            self.journal.settled("nack", [message], now_ms())
            raise Retry(delay=timedelta(milliseconds=self._random.choice((0, 100))))
        self.journal.settled("ack", [message], now_ms())


def run_threads(url: str, work: Work, plant: str, consumer: dict[str, Any]) -> None:
    """Handlers in threads, until SIGTERM."""
    with Client(url) as client:

        @client.consumer(TOPIC, **consumer)
        def handle(message: Message) -> None:
            seconds = work.begin(message)
            if plant == EARLY_ACK:
                client.ack(message)
            time.sleep(seconds)
            work.end(message)

        client.run()


async def run_tasks(url: str, work: Work, plant: str, consumer: dict[str, Any]) -> None:
    """Handlers in an event loop, until SIGTERM."""
    async with AsyncClient(url) as client:

        @client.consumer(TOPIC, **consumer)
        async def handle(message: Message) -> None:
            seconds = work.begin(message)
            if plant == EARLY_ACK:
                await client.ack(message)
            await asyncio.sleep(seconds)
            work.end(message)

        await client.run()


def main(kind: str, url: str, journal: str, lease_ms: str, seed: str, plant: str) -> None:
    """Work until a signal comes."""
    lease, wait = timedelta(milliseconds=int(lease_ms)), timedelta(milliseconds=500)
    consumer = {"concurrency": 6, "lease": lease, "wait": wait}
    if plant == COUNT_ALL:
        BeginningDesk.begin_at_once = lambda _, n: None  # type: ignore[method-assign]
    with SdkHistory(Path(journal), at_once=True) as history:
        work = Work(history, int(lease_ms), seed)
        if kind == "threads":
            run_threads(url, work, plant, consumer)
        else:
            asyncio.run(run_tasks(url, work, plant, consumer))


if __name__ == "__main__":
    main(*sys.argv[1:])
