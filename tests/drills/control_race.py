"""The control race: cancels and reschedules of what is just falling due, while it is received.

    python tests/drills/control_race.py [--controls 1000000] [--seed S] [--keep]

One broker; senders with due times a moment ahead, consumers that take, ack and give back, and
controllers that cancel, reschedule and deliver now whatever was sent in the last seconds, in bulk
and one by one, wherever it stands. Each answer goes into a history and the checker judges them
all: a cancel that was answered is never followed by a delivery, a message moved comes at its last
time only. Exit status 0 means: every reply was true and nothing was lost or early.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from random import Random

from drill import Drill, counted, open_messages, parser_of, run_main
from recorded_calls import Known, RecordedCalls, now_ms

from delaylog.broker.history import HistoryRecorder
from delaylog.client import AsyncPlainClient
from delaylog.client.child_broker import ChildBroker

TOPIC = "race"
BATCH = 500
AHEAD_MS = (20, 2_500)
RECENT_BATCHES = 60
"""Controls choose among so many batches: most are falling due, in hand or just over."""
BACKLOG_MAX = 60_000
"""Living messages beyond which senders wait, so that all of it stays a race."""
LEASE_MS = 1_500
RETRIES_MAX = 60_000
DRAIN_TIMEOUT_S = 60.0
_SENDERS, _CONTROLLERS, _CONSUMERS = 2, 4, 3


class ControlRace(Drill):
    """One run over one folder."""

    rules = "ABCDEHJ"  # No keys here: F and G are the kill loop's.
    lease_ms = LEASE_MS

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self.controls = 0
        self.made = 0
        self.replies: Counter[str] = Counter()
        self._recent: deque[list[str]] = deque(maxlen=RECENT_BATCHES)
        self._living = 0

    @property
    def _done(self) -> bool:
        return self.controls >= self.options.controls

    async def run(self) -> None:
        """The race, then the drain."""
        with HistoryRecorder(self.history, client="control-race") as recorder:
            async with (
                ChildBroker(self.folder / "data") as broker,
                AsyncPlainClient(broker.url) as client,
            ):
                await client.put_topic(TOPIC, {"max_retry": RETRIES_MAX})
                calls = RecordedCalls(client, recorder, self.wrong, self.counts)
                works = [
                    *(self._send(calls, n) for n in range(_SENDERS)),
                    *(self._control(calls, n) for n in range(_CONTROLLERS)),
                    *(self._consume(calls, n) for n in range(_CONSUMERS)),
                ]
                await asyncio.gather(*works)
                await self._finish(calls, client)
                recorder.mark("end", now_ms())

    def _random_of(self, what: str, number: int) -> Random:
        return Random(f"{self.options.seed} {what} {number}")

    async def _send(self, calls: RecordedCalls, number: int) -> None:
        random = self._random_of("send", number)
        while not self._done:
            if self._living > BACKLOG_MAX:
                await asyncio.sleep(0.01)
                continue
            first, self.made = self.made, self.made + BATCH
            bodies = [b"%d-%d" % (self.options.seed, k) for k in range(first, first + BATCH)]
            dues_ms = [now_ms() + random.randint(*AHEAD_MS) for _ in bodies]
            ids = None
            if random.random() < 0.5:
                ids = [f"own-{k}" for k in range(first, first + BATCH)]
            self._living += BATCH
            known = await calls.send_bulk(TOPIC, bodies, dues_ms, ids)
            self._recent.append([each.id for each in known])

    async def _control(self, calls: RecordedCalls, number: int) -> None:
        random = self._random_of("control", number)
        while not self._done:
            if len(self._recent) < RECENT_BATCHES // 4:
                await asyncio.sleep(0.01)
                continue
            ids = {random.choice(random.choice(self._recent)) for _ in range(BATCH)}
            kind = random.random()
            if kind < 0.05:
                await self._control_one(calls, random, ids.pop())
                continue
            if kind < 0.4:
                due_ms = None
            elif kind < 0.5:
                due_ms = now_ms()
            else:
                due_ms = now_ms() + random.randint(1, 2_000)
            oks = await calls.change_bulk(TOPIC, sorted(ids), due_ms)
            self._count("cancel" if due_ms is None else "reschedule", oks or [])

    async def _control_one(self, calls: RecordedCalls, random: Random, id_: str) -> None:
        known = Known(TOPIC, id_)
        if random.random() < 0.4:
            self._count("cancel", [await calls.cancel(known)])
        else:
            due_ms = now_ms() + random.choice([0, random.randint(1, 2_000)])
            self._count("reschedule", [await calls.reschedule(known, due_ms)])

    def _count(self, op: str, oks: list[bool] | list[bool | None]) -> None:
        self.controls += len(oks)
        done = sum(ok is True for ok in oks)
        self.replies[f"{op} done"] += done
        self.replies[f"{op} too late"] += len(oks) - done
        if op == "cancel":
            self._living -= done

    async def _consume(self, calls: RecordedCalls, number: int) -> None:
        random = self._random_of("consume", number)
        while not self._done:
            lease, leased = await calls.receive_bulk(TOPIC, 1_000, 50, LEASE_MS)
            if random.random() < 0.3:
                # So that controls meet messages in hand.
                await asyncio.sleep(random.random() * 0.3)
            back = leased[: len(leased) // 8] if random.random() < 0.5 else []
            if back:
                await calls.settle("nack", back, delay_ms=random.choice([0, 200]))
                acked = leased[len(back) :]
                await calls.settle("ack", acked)
            else:
                await calls.ack_lease(lease, leased)
            self._living -= len(leased) - len(back)

    async def _finish(self, calls: RecordedCalls, client: AsyncPlainClient) -> None:
        async def take() -> int:
            lease, leased = await calls.receive_bulk(TOPIC, 1_000, 200, 10_000)
            await calls.ack_lease(lease, leased)
            return len(leased)

        async def left() -> int:
            return open_messages((await client.stats(TOPIC))["counts"])

        await self.drain(take, left, DRAIN_TIMEOUT_S)

    def figures(self) -> Sequence[str]:
        """How the race ended. One that one side always wins tries nothing."""
        for op in ("cancel", "reschedule"):
            for how in ("done", "too late"):
                if self.replies[f"{op} {how}"] <= self.options.controls // 100:
                    self.wrong.append(f"not a race: see how often {op} was {how}")
        return [f"{self.controls:,} controls of {self.made:,} messages", counted(self.replies)]

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self.controls / took_s:,.0f} controls/s"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--controls", type=int, default=1_000_000)
    run_main("control-race", ControlRace, parser)
