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
import sys
import time
from collections import Counter, deque
from pathlib import Path
from random import Random, SystemRandom

from judged_run import run_judged
from recorded_calls import Known, RecordedCalls, now_ms

from delaylog.broker.history import CheckSettings, HistoryRecorder, check_files, report_text
from delaylog.client import AsyncPlainClient
from delaylog.client.child_broker import ChildBroker

TOPIC = "race"
RULES = frozenset("ABCDEHJ")
"""No keys here: F and G are the kill loop's."""
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


class ControlRace:
    """One run over one folder."""

    def __init__(self, folder: Path, seed: int, controls_max: int) -> None:
        self.folder = folder
        self.history = folder / "history.jsonl"
        self._seed = seed
        self._controls_max = controls_max
        self.controls = 0
        self.made = 0
        self.replies: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._recent: deque[list[str]] = deque(maxlen=RECENT_BATCHES)
        self._living = 0

    @property
    def _done(self) -> bool:
        return self.controls >= self._controls_max

    async def run(self) -> None:
        """The race, then the drain."""
        with HistoryRecorder(self.history, client="control-race") as recorder:
            async with (
                ChildBroker(self.folder / "data") as broker,
                AsyncPlainClient(broker.url) as client,
            ):
                await client.put_topic(TOPIC, {"max_retry": RETRIES_MAX})
                calls = RecordedCalls(client, recorder, self.surprises, self.counts)
                works = [
                    *(self._send(calls, n) for n in range(_SENDERS)),
                    *(self._control(calls, n) for n in range(_CONTROLLERS)),
                    *(self._consume(calls, n) for n in range(_CONSUMERS)),
                ]
                await asyncio.gather(*works)
                await self._drain(calls, client)
                recorder.mark("end", now_ms())

    def _random(self, what: str, number: int) -> Random:
        return Random(f"{self._seed} {what} {number}")

    async def _send(self, calls: RecordedCalls, number: int) -> None:
        random = self._random("send", number)
        while not self._done:
            if self._living > BACKLOG_MAX:
                await asyncio.sleep(0.01)
                continue
            first, self.made = self.made, self.made + BATCH
            bodies = [b"%d-%d" % (self._seed, k) for k in range(first, first + BATCH)]
            dues_ms = [now_ms() + random.randint(*AHEAD_MS) for _ in bodies]
            ids = None
            if random.random() < 0.5:
                ids = [f"own-{k}" for k in range(first, first + BATCH)]
            self._living += BATCH
            known = await calls.send_bulk(TOPIC, bodies, dues_ms, ids)
            self._recent.append([each.id for each in known])

    async def _control(self, calls: RecordedCalls, number: int) -> None:
        random = self._random("control", number)
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
        random = self._random("consume", number)
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

    async def _drain(self, calls: RecordedCalls, client: AsyncPlainClient) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while time.monotonic() < deadline:
            lease, leased = await calls.receive_bulk(TOPIC, 1_000, 200, 10_000)
            await calls.ack_lease(lease, leased)
            if leased:
                continue
            counts = (await client.stats(TOPIC))["counts"]
            if not any(counts[state] for state in ("waiting", "ready", "leased")):
                return
        self.surprises.append(f"after {DRAIN_TIMEOUT_S:.0f} s still open: {counts}")

    def report(self) -> tuple[bool, str]:
        """Whether all held, and the page that says so."""
        settings = CheckSettings(bound_ms=0, lease_ms=LEASE_MS, rules=RULES)
        checked = check_files([self.history], settings)
        lines = [
            f"{self.controls:,} controls of {self.made:,} messages",
            ", ".join(f"{name} {count:,}" for name, count in sorted(self.replies.items())),
            ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items())),
            report_text(checked),
            *(f"surprise: {text}" for text in self.surprises[:20]),
        ]
        # A race that one side always wins tries nothing.
        raced = all(
            self.replies[f"{op} {how}"] > self._controls_max // 100
            for op in ("cancel", "reschedule")
            for how in ("done", "too late")
        )
        if not raced:
            lines.append("not a race: see the replies above")
        return checked.holds and raced and not self.surprises, "\n".join(lines)

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        return f"{self.controls / took_s:,.0f} controls/s"


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--controls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    options = parser.parse_args()
    seed = options.seed
    holds = run_judged(
        "control-race",
        seed,
        lambda folder: ControlRace(folder, seed, options.controls),
        keep=options.keep,
    )
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
