"""The kill -9 loop: one data folder, a mixed load, and a broker that dies again and again.

    python tests/drills/kill_loop.py [--rounds 50] [--seed S] [--keep] [--warm]

Each round starts the broker on the same folder, loads it, and kills it with SIGKILL after 0.1 to 1
s; in some rounds it is also killed while it starts. After the last round the broker stays, what is
open is settled and drained, and the history of all rounds is judged by the checker. Exit status 0
means: nothing acknowledged was lost, nothing came early, every rule held, and no answer was
surprising. A failing run prints its seed and keeps its folder. With --warm brokers begin with their
modules loaded, which is most of what a start costs; kills while one starts come that much earlier.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

# This is a program: what it needs of the tests is two folders up, behind all packages.
sys.path.append(str(Path(__file__).parents[2]))

from drill import Drill, open_messages, parser_of, run_main
from mixed_load import RETRIES_MAX, TOPICS, MixedLoad
from recorded_calls import RecordedCalls, now_ms

from delaylog.broker.history import HistoryRecorder
from delaylog.client import AsyncPlainClient
from delaylog.client.child_broker import BrokerStartError, ChildBroker
from tests.starts.tuned import BUSY, tuned, tuning
from tests.starts.warm_child import WarmChildBroker

UP_S_RANGE = (0.1, 1.0)
START_KILL_SHARE = 0.1
"""Rounds in which the broker is killed while it starts, before the round's real start."""
START_KILL_S_MAX = 0.8
WARM_START_KILL_S_MAX = 0.15
BACKOFF_MS_MAX = 800
BUSY_SHARE = 0.6
BUSY_CONSTANTS = {**BUSY, "delaylog.broker.host.system.descriptors.OPEN_HOURS_SERVED": 8}
"""Rounds are too short for the usual constants: with these the kill also meets the splitter, the
writing of states, checkpoints and the dropping of segments, not only the log."""
DRAIN_TIMEOUT_S = 90.0


class KillLoop(Drill):
    """Rounds over one folder, and what they wrote down."""

    rules = "ABCDEFGHJ"
    lease_ms = 1_000

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(folder, options)
        self._kind = WarmChildBroker if options.warm else ChildBroker
        self._start_kill_s_max = WARM_START_KILL_S_MAX if options.warm else START_KILL_S_MAX
        self._load = MixedLoad(options.seed)
        self._recorder = HistoryRecorder(self.history, client="kill-loop")
        self.start_times_s: list[float] = []
        self.kills = 0
        self._topics_made = False

    async def run(self) -> None:
        """All rounds, then the drain."""
        with self._recorder:
            for _ in range(self.options.rounds):
                await self._round()
            await self._finish()

    def _broker(self) -> ChildBroker:
        constants = BUSY_CONSTANTS if self.random.random() < BUSY_SHARE else {}
        broker = self._kind(self.folder / "data", program=tuned(constants))
        if isinstance(broker, WarmChildBroker):
            broker.tuning = tuning(constants)
        return broker

    def _calls(self, client: AsyncPlainClient) -> RecordedCalls:
        return RecordedCalls(client, self._recorder, self.wrong, self.counts)

    async def _round(self) -> None:
        if self.random.random() < START_KILL_SHARE:
            await self._kill_while_starting()
        up_s = self.random.uniform(*UP_S_RANGE)
        async with self._broker() as broker:
            self.start_times_s.append(broker.started_in_s)
            async with AsyncPlainClient(broker.url, failover=timedelta(0)) as client:
                if not self._topics_made:
                    await self._make_topics(client)
                load = asyncio.create_task(self._load.run(self._calls(client)))
                await asyncio.wait([load], timeout=up_s)
                self._load.stopping = True
                if not broker.running:
                    self.wrong.append(f"the broker ended by itself\n{broker.log_tail()}")
                killed_ms = now_ms()
                await broker.kill()
                self._recorder.mark("kill", killed_ms, until=now_ms())
                self.kills += 1
                await load

    async def _make_topics(self, client: AsyncPlainClient) -> None:
        # A retry with backoff moves to a row of its own, one without goes back where it was.
        for topic, first_ms in zip(TOPICS, (0, 100), strict=True):
            backoff = {"first_ms": first_ms, "max_ms": BACKOFF_MS_MAX}
            await client.put_topic(topic, {"max_retry": RETRIES_MAX, "backoff": backoff})
        self._topics_made = True

    async def _kill_while_starting(self) -> None:
        broker = self._broker()
        starting = asyncio.create_task(broker.start())
        await asyncio.wait([starting], timeout=self.random.uniform(0.0, self._start_kill_s_max))
        killed_ms = now_ms()
        await broker.kill()
        with suppress(BrokerStartError):
            await starting
        # The first kill may have come before there was a process to kill.
        await broker.kill()
        self._recorder.mark("kill", killed_ms, until=now_ms())
        self.kills += 1

    async def _finish(self) -> None:
        """No more kills: settle, bring near, drain until the broker says that nothing is open."""
        async with self._broker() as broker, AsyncPlainClient(broker.url) as client:
            calls = self._calls(client)
            await self._load.finish(calls)

            async def left() -> int:
                stats = [await client.stats(topic) for topic in TOPICS]
                return sum(open_messages(each["counts"]) for each in stats)

            await self.drain(lambda: self._load.drain_step(calls), left, DRAIN_TIMEOUT_S)
            self._recorder.mark("end", now_ms())
            status = await broker.stop()
            if status != 0:
                self.wrong.append(f"SIGTERM ended it with status {status}")

    def figures(self) -> Sequence[str]:
        """Kills, and how long starts took."""
        starts = self.start_times_s
        return [
            f"{self.kills} kills, {self._load.messages_made:,} messages made; "
            f"start {sum(starts) / len(starts):.2f} s on average, {max(starts):.2f} s at most"
        ]

    def pace(self, took_s: float) -> str:
        """For the page's last line."""
        rounds = self.options.rounds
        return f"{rounds} rounds, {took_s / rounds:.1f} s each,"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--warm", action="store_true", help="start brokers with modules loaded")
    run_main("kill-loop", KillLoop, parser)
