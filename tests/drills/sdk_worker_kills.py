"""Workers killed at any point: nothing is lost, taken too soon, or acked unfinished.

    python tests/drills/sdk_kills.py workers [--rounds 20]

One broker and three worker processes, of tasks and of threads, each killed with SIGKILL a moment
after its handlers began, and replaced. Handlers write a journal that outlives them. At the end
every message was handled to its end and acked, and those whose handlers always fail are dead after
the promised attempts; the journals are a history, which the checker judges, and the broker tells
each message's life, by its own clock, which has to fit the journals. What waited in a killed worker
was not counted, but for the few attempts that begin just ahead of their handlers.
`--plant early-ack` has workers ack before they work, `--plant count-all` has them begin attempts
as they receive, `--plant meddler` has somebody else end their leases: all have to be found.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final

from drill import Drill, counted, open_messages
from sdk_history import SdkHistory, now_ms
from sdk_lives import Journals, judge_life, tally
from sdk_worker import COUNT_ALL, EARLY_ACK, POISON, TOPIC

from delaylog.broker.history import CheckReport, check_files
from delaylog.client import AsyncClient, ClientError
from delaylog.client.child_broker import ChildBroker
from tests.starts.tuned import tuned

PROGRAM: Final = Path(__file__).with_name("sdk_worker.py")
KINDS: Final = ("tasks", "threads")
WORKERS: Final = 3
LEASE_MS: Final = 1_800
"""Half of it, after which a lease is extended, is longer than what a busy machine stalls."""
KEYS: Final = 50
AHEAD: Final = 150
"""Messages that wait or run: enough that each worker has some when it is killed."""
BURST: Final = 10
POISONED: Final = 4
"""Which message of a burst always fails."""
RETRIES: Final = 2
MOMENT_S: Final = (0.0, 0.4)
SPARED_EVERY: Final = 10
"""One worker in so many lives on until leases of slow messages are extended."""
BEGIN_S_MAX: Final = 60.0
LIFE_TRIES: Final = 5
"""A broker looks into its log for two seconds, in which a busy machine may not get through it."""
DRAIN_S: Final = 90.0
SOUND: Final = "none"
MEDDLER: Final = "meddler"
PLANTS: Final = (EARLY_ACK, COUNT_ALL, MEDDLER)
LOG_KEPT = {
    "delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 86_400_000,
    "delaylog.broker.engine.upkeep.checkpoints.IDLE_MS": 86_400_000,
}
"""So that the log still holds every step of every life at the end."""


class SdkWorkerKills(Drill):
    """One run over one folder; a round is a kill."""

    rules = "ABCFGJ"

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self.calls = SdkHistory(self.history)
        self.kills = 0
        self.complete = 0
        self.cut_off = 0
        self.kinds: Counter[str] = Counter()
        self._kills_max = options.rounds
        self._plant = options.plant
        self._seed = options.seed
        self._numbers = count(1)
        self._ids: list[str] = []
        self._poisoned: set[str] = set()
        self.unhandled: Counter[str] = Counter()
        self._stopping = False

    async def run(self) -> None:
        """Kill, then drain, then read every life."""
        with self.calls:
            async with (
                ChildBroker(self.folder / "data", program=tuned(LOG_KEPT)) as broker,
                AsyncClient(broker.url) as client,
            ):
                settings = {"max_retry": 60_000, "ended_keep_ms": 3_600_000}
                backoff = {"first_ms": 50, "max_ms": 200}
                await client.broker().put_topic(TOPIC, {**settings, "backoff": backoff})
                helpers = [asyncio.create_task(self._send(client))]
                if self._plant == MEDDLER:
                    helpers.append(asyncio.create_task(self._meddle(client)))
                await asyncio.gather(*(self._kill_some(broker.url, n) for n in range(WORKERS)))
                self._stopping = True
                await asyncio.gather(*helpers)
                await self._finish(client, broker.url)
                await self._read_lives(client)

    # The load

    async def _send(self, client: AsyncClient) -> None:
        """Keep some messages ahead of the workers, every second one with a key."""
        while not self._stopping:
            if await self._open(client) < AHEAD:
                for number in range(BURST):
                    poisoned = number == POISONED
                    body = b"%d-%d%b" % (self._seed, len(self._ids), POISON if poisoned else b"")
                    key = f"key-{self.random.randrange(KEYS)}" if number % 2 else None
                    begun = self.calls.begin(TOPIC, body, None, own_id=None, key=key)
                    retries = RETRIES if poisoned else None
                    sent = await client.send(TOPIC, body, key=key, max_retry=retries)
                    self.calls.sent(begun, sent)
                    self._ids.append(sent.id)
                    if poisoned:
                        self._poisoned.add(sent.id)
            await asyncio.sleep(0.02)

    async def _meddle(self, client: AsyncClient) -> None:
        """End leases of others, by ids."""
        while not self._stopping:
            with suppress(ClientError):
                await client.settle_ids(TOPIC, "nack", self._ids[-AHEAD:], delay=timedelta(0))
            await asyncio.sleep(0.05)

    async def _open(self, client: AsyncClient) -> int:
        return open_messages((await client.broker().stats(TOPIC))["counts"])

    # Workers

    async def _start(self, url: str, kind: str) -> tuple[asyncio.subprocess.Process, Path]:
        number = next(self._numbers)
        journal = self.folder / f"journal-{number}.jsonl"
        journal.touch()
        plant = self._plant if self._plant in (EARLY_ACK, COUNT_ALL) else SOUND
        seed = f"{self._seed} {number}"
        command = [str(PROGRAM), kind, url, str(journal), str(LEASE_MS), seed, plant]
        with (self.folder / "workers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=log)
        return process, journal

    async def _kill_some(self, url: str, slot: int) -> None:
        """One worker after another, each killed a moment after it began to handle."""
        while self.kills < self._kills_max:
            process, journal = await self._start(url, KINDS[slot % len(KINDS)])
            slot += 1
            try:
                async with asyncio.timeout(BEGIN_S_MAX):
                    await _begun(journal)
                moment_s = self.random.uniform(*MOMENT_S)
                if self.kills % SPARED_EVERY == 0:
                    moment_s += 1.5 * LEASE_MS / 1000
                await asyncio.sleep(moment_s)
                if process.returncode is not None:
                    self.wrong.append(f"a worker ended by itself with {process.returncode}")
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self.kills += 1

    async def _finish(self, client: AsyncClient, url: str) -> None:
        """Workers that are left alone end all of it, and then end by SIGTERM."""
        workers = [await self._start(url, kind) for kind in KINDS]
        try:
            await self.drain(lambda: asyncio.sleep(0.1), lambda: self._open(client), DRAIN_S)
            self.calls.mark("end", now_ms())
            for process, _ in workers:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(BEGIN_S_MAX):
                    status = await process.wait()
                if status != 0:
                    self.wrong.append(f"SIGTERM ended a worker with status {status}")
        finally:
            for process, _ in workers:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    # Judging

    async def _read_lives(self, client: AsyncClient) -> None:
        journals = Journals.read(sorted(self.folder.glob("journal-*.jsonl")))
        self.wrong += journals.wrong
        self.cut_off = journals.cut_off
        for own in self._ids:
            for _ in range(LIFE_TRIES):
                info = await client.get(TOPIC, own, life=True)
                if info.life_complete:
                    break
            # The journals name what a broker made with its shard in front.
            handled = journals.by_id.get(f"{client.shards[0].name} {own}", {})
            self.complete += info.life_complete
            self.kinds.update(str(step["event"]) for step in info.life)
            retries = RETRIES if own in self._poisoned else None
            self.wrong += [f"{own}: {text}" for text in judge_life(info.life, handled, retries)]
            self.unhandled += tally(info.life, handled)

    def check(self) -> CheckReport:
        """By what was sent, and by the journals of all workers."""
        journals = sorted(self.folder.glob("journal-*.jsonl"))
        return check_files([self.history, *journals], self.settings())

    def figures(self) -> Sequence[str]:
        """Kills, lives and attempts."""
        wrong = self.wrong
        if self.complete != len(self._ids):
            wrong.append(f"only {self.complete} of {len(self._ids)} lives are complete")
        if not self.cut_off or not self.kinds["lease_expired"] or not self.kinds["lease_extended"]:
            wrong.append("no worker was killed with a message in hand, or none extended a lease")
        counts, uncounted = self.unhandled["counted"], self.unhandled["uncounted"]
        # Attempts begin ahead of their handlers by the duration of two calls, so how many a killed
        # worker had begun depends on the machine; most of what waited must not have begun.
        if counts >= uncounted:
            wrong.append("attempts at messages that waited in a killed worker were counted")
        return [
            f"{self.kills} workers killed, {self.cut_off} handlers cut off; the lives of "
            f"{len(self._ids):,} messages: {counted(self.kinds)}",
            f"{counts + uncounted} leases ended without a handler, {counts} of them were counted",
        ]

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self.kills} kills, {took_s / max(1, self.kills):.1f} s each,"


async def _begun(journal: Path) -> None:
    """Wait until a worker's first handler has begun."""
    while True:
        if _size_bytes(journal):
            return
        await asyncio.sleep(0.01)


def _size_bytes(path: Path) -> int:
    return path.stat().st_size
