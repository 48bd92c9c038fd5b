"""Workers killed at any point: nothing is lost, taken too soon, or acked unfinished.

    python tests/drills/sdk_worker_kills.py [--kills 50] [--seed S] [--keep]

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
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from judged_run import run_judged
from sdk_history import SdkHistory, now_ms
from sdk_lives import Journals, judge_life, tally
from sdk_worker import COUNT_ALL, EARLY_ACK, POISON, TOPIC

from delaylog.broker.history import CheckSettings, check_files, report_text
from delaylog.client import AsyncClient, ClientError
from delaylog.client.child_broker import ChildBroker
from tests.starts.tuned import tuned

RULES: Final = frozenset("ABCFGJ")
PROGRAM: Final = Path(__file__).with_name("sdk_worker.py")
KINDS: Final = ("tasks", "threads")
WORKERS: Final = 3
LEASE_MS: Final = 900
KEYS: Final = 50
AHEAD: Final = 150
"""Messages that wait or run: enough that each worker has some when it is killed."""
BURST: Final = 10
POISONED: Final = 4
"""Which message of a burst always fails."""
RETRIES: Final = 2
COUNTED_A_KILL_MAX: Final = 6
"""Leases of a killed worker that ended without a handler, and whose attempts counted: as many as it
has handlers. How many began ahead depends on how long calls take."""
MOMENT_S: Final = (0.0, 0.4)
SPARED_EVERY: Final = 10
"""One worker in so many lives on until leases of slow messages are extended."""
BEGIN_S_MAX: Final = 60.0
LIFE_TRIES: Final = 5
"""A broker looks into its log for two seconds, in which a busy machine may not get through it."""
DRAIN_S: Final = 90.0
SHOWN_MAX: Final = 10
SOUND: Final = "none"
MEDDLER: Final = "meddler"
LOG_KEPT = {
    "delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 86_400_000,
    "delaylog.broker.engine.upkeep.checkpoints.IDLE_MS": 86_400_000,
}
"""So that the log still holds every step of every life at the end."""


class SdkWorkerKills:
    """One run over one folder."""

    def __init__(self, folder: Path, seed: int, kills: int, plant: str) -> None:
        self.folder = folder
        self.history = SdkHistory(folder / "sends.jsonl")
        self.kills = 0
        self.complete = 0
        self.cut_off = 0
        self.kinds: Counter[str] = Counter()
        self._kills_max = kills
        self._plant = plant
        self._seed = seed
        self._random = Random(seed)
        self._numbers = count(1)
        self._ids: list[str] = []
        self._poisoned: set[str] = set()
        self.unhandled: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._stopping = False

    async def run(self) -> None:
        """Kill, then drain, then read every life."""
        with self.history:
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
                await self._drain(client, broker.url)
                await self._read_lives(client)

    # The load

    async def _send(self, client: AsyncClient) -> None:
        """Keep some messages ahead of the workers, every second one with a key."""
        while not self._stopping:
            if await self._open(client) < AHEAD:
                for number in range(BURST):
                    poisoned = number == POISONED
                    body = b"%d-%d%b" % (self._seed, len(self._ids), POISON if poisoned else b"")
                    key = f"key-{self._random.randrange(KEYS)}" if number % 2 else None
                    begun = self.history.begin(TOPIC, body, None, own_id=None, key=key)
                    retries = RETRIES if poisoned else None
                    sent = await client.send(TOPIC, body, key=key, max_retry=retries)
                    self.history.sent(begun, sent)
                    self._ids.append(sent.id)
                    if poisoned:
                        self._poisoned.add(sent.id)
            await asyncio.sleep(0.02)

    async def _meddle(self, client: AsyncClient) -> None:
        """End leases of others, by ids."""
        while not self._stopping:
            with suppress(ClientError):
                await client.settle_ids(TOPIC, "nack", self._ids[-AHEAD:], delay_ms=0)
            await asyncio.sleep(0.05)

    async def _open(self, client: AsyncClient) -> int:
        counts = (await client.broker().stats(TOPIC))["counts"]
        return sum(counts[state] for state in ("waiting", "ready", "leased"))

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
                moment_s = self._random.uniform(*MOMENT_S)
                if self.kills % SPARED_EVERY == 0:
                    moment_s += 1.5 * LEASE_MS / 1000
                await asyncio.sleep(moment_s)
                if process.returncode is not None:
                    self._wrong.append(f"a worker ended by itself with {process.returncode}")
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self.kills += 1

    async def _drain(self, client: AsyncClient, url: str) -> None:
        """Workers that are left alone end all of it, and then end by SIGTERM."""
        workers = [await self._start(url, kind) for kind in KINDS]
        try:
            deadline_s = time.monotonic() + DRAIN_S
            while left := await self._open(client):
                if time.monotonic() > deadline_s:
                    self._wrong.append(f"{left} messages are still open after {DRAIN_S:.0f} s")
                    break
                await asyncio.sleep(0.1)
            # Whatever could still come, a second copy of something above all, comes now.
            await asyncio.sleep(0.3)
            self.history.mark("end", now_ms())
            for process, _ in workers:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(BEGIN_S_MAX):
                    status = await process.wait()
                if status != 0:
                    self._wrong.append(f"SIGTERM ended a worker with status {status}")
        finally:
            for process, _ in workers:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    # Judging

    async def _read_lives(self, client: AsyncClient) -> None:
        journals = Journals.read(sorted(self.folder.glob("journal-*.jsonl")))
        self._wrong += journals.wrong
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
            self._wrong += [f"{own}: {text}" for text in judge_life(info.life, handled, retries)]
            self.unhandled += tally(info.life, handled)

    def report(self) -> tuple[bool, str]:
        """Whether all held, and the page that says so."""
        paths = [self.history.path, *sorted(self.folder.glob("journal-*.jsonl"))]
        checked = check_files(paths, CheckSettings(bound_ms=0, rules=RULES))
        wrong = list(self._wrong)
        if self.complete != len(self._ids):
            wrong.append(f"only {self.complete} of {len(self._ids)} lives are complete")
        if not self.cut_off or not self.kinds["lease_expired"] or not self.kinds["lease_extended"]:
            wrong.append("no worker was killed with a message in hand, or none extended a lease")
        counted, uncounted = self.unhandled["counted"], self.unhandled["uncounted"]
        if not uncounted or counted > COUNTED_A_KILL_MAX * self.kills:
            wrong.append("attempts at messages that waited in a killed worker were counted")
        lines = [
            f"{self.kills} workers killed, {self.cut_off} handlers cut off; the lives of "
            f"{len(self._ids):,} messages: {dict(sorted(self.kinds.items()))}",
            f"{counted + uncounted} leases ended without a handler, {counted} of them were counted",
            report_text(checked),
            *wrong[:SHOWN_MAX],
            *([f"… and {len(wrong) - SHOWN_MAX} more"] if len(wrong) > SHOWN_MAX else []),
        ]
        return checked.holds and not wrong, "\n".join(lines)

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


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--plant", choices=[SOUND, EARLY_ACK, COUNT_ALL, MEDDLER], default=SOUND)
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    options = parser.parse_args()
    holds = run_judged(
        "sdk-workers",
        options.seed,
        lambda folder: SdkWorkerKills(folder, options.seed, options.kills, options.plant),
        keep=options.keep,
    )
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
