"""A load of recurring schedules: what they are, what is done to them, and who takes the messages.

Every call becomes a line of the history, with the broker's answer. One task changes schedules, so
that calls about one schedule never overlap in time, as rule K demands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from random import Random
from typing import Any, Final

from recorded_calls import Leased, RecordedCalls, now_ms
from zone_releases import ZONE

TOPIC: Final = "ticks"
STEADY: Final = "s0"
LEASE_MS: Final = 1_500
WAIT_MS: Final = 200
RETRIES_MAX: Final = 60_000
HOLD_SHARE, NACK_SHARE, FORGET_SHARE = 0.08, 0.02, 0.01
HOLD_S: Final = (0.3, 2.5)
"""A held message makes the next firings of its schedule overlap; some leases end meanwhile."""
MEDDLE_EVERY_S: Final = 0.05
STEP_MS: Final = 5_000
"""By how much a drill steps the broker's clock, which then stands still for so long at most. A name
is free for another schedule after that time: both could fire in the ms at which the clock stands,
and their messages would have one id.
"""
MS: Final = timedelta(milliseconds=1)
ZONES: Final = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", ZONE)


def members_of(random: Random, number: int) -> dict[str, Any]:
    """What one schedule says: one to five seconds, in every form and under every policy."""
    step = random.randint(1, 5)
    members: dict[str, Any] = {
        "overlap": random.choices(("allow", "skip", "buffer_one", "replace"), (6, 2, 2, 1))[0],
        "catch_up": random.choices(("all", "latest", "none"), (6, 2, 1))[0],
        "jitter": random.choice((0, 0, 0, random.randint(1, 900))) * MS,
    }
    form = number % 4
    if form == 0:
        return members | {"interval": random.randint(1_000, 5_000) * MS}
    zone = random.choice(ZONES)
    if form == 1:
        return members | {"cron": f"*/{step} * * * * *", "zone": zone}
    if form == 2:
        # Fixed minutes and hours, which clock changes concern.
        return members | {"cron": f"*/{step} 0-59 0-23 * * *", "zone": zone}
    half = random.choice(("0-29", "30-59"))
    gap, fold = random.choice(("next", "skip")), random.choice(("first", "second", "both"))
    cron = f"*/{step} {half} 0-23 * * *"
    return members | {"cron": cron, "zone": ZONE, "gap": gap, "fold": fold}


class ScheduleLoad:
    """All schedules of a drill. `calls` of its methods are those of the present broker."""

    def __init__(self, seed: int, count: int) -> None:
        self._random = Random(seed)
        self.names = [f"s{n}" for n in range(count)]
        self._members = {
            name: members_of(self._random, number) for number, name in enumerate(self.names)
        }
        # It is never changed, and fires at each second whatever happens to the broker.
        self._members[STEADY] = {"interval": 1_000 * MS, "start_ms": 0, "catch_up": "all"}
        self._gone: dict[str, int] = {}
        """When each was deleted, by the clock of the drill."""
        self._doubtful: list[str] = []
        """Whose last answer was lost: nothing of them can be judged until they are called again."""
        self._paused: set[str] = set()
        self.firings = 0
        self.stopping = False

    async def make(self, calls: RecordedCalls) -> None:
        """Create the topic and all schedules."""
        backoff = {"first_ms": 50, "max_ms": 400}
        await calls.client.put_topic(TOPIC, {"max_retry": RETRIES_MAX, "backoff": backoff})
        for name in self.names:
            await self._put(calls, name)

    async def run(self, calls: RecordedCalls) -> None:
        """Consume and change until `stopping`."""
        self.stopping = False
        consumers = (self._consume(calls) for _ in range(3))
        await asyncio.gather(self._meddle(calls), *consumers)

    async def look(self, calls: RecordedCalls) -> None:
        """Read the schedules whose next instants another release of tzdata has moved."""
        for name in self._living():
            if self._members[name].get("zone") == ZONE:
                await self._record(calls, name, calls.client.schedule(TOPIC, name))

    def _living(self) -> list[str]:
        return [name for name in self.names if name not in self._gone]

    async def finish(self, calls: RecordedCalls) -> None:
        """Read and pause all; messages that were sent are still to be received."""
        for name in self._gone:
            # A deletion whose answer was lost may not have been done.
            await self._drop(calls, name)
        for name in self._living():
            await self._record(calls, name, calls.client.schedule(TOPIC, name))
        for name in self._living():
            await self._record(calls, name, calls.client.pause_schedule(TOPIC, name, "the end"))

    async def take(self, calls: RecordedCalls) -> bool:
        """Receive and ack what is ready; whether anything was."""
        leased = await calls.receive(TOPIC, 100, WAIT_MS, LEASE_MS)
        await calls.settle("ack", leased)
        return bool(leased)

    # ------------------------------------------------------------------ calls about schedules

    async def _record(self, calls: RecordedCalls, name: str, call: Awaitable[Any]) -> bool | None:
        """Call, and write it down; False: it was certainly not done, None: nobody knows."""
        t0 = now_ms()
        answer, ok = await calls.outcome("schedule", call)
        if ok is not False:
            calls.recorder.call("schedule", t0, now_ms(), ok, id=name, answer=answer)
        if ok is None:
            self._doubtful.append(name)
        return ok

    async def _put(self, calls: RecordedCalls, name: str) -> None:
        members = self._members[name]
        await self._record(calls, name, calls.client.put_schedule(TOPIC, name, b"x", **members))

    async def _meddle(self, calls: RecordedCalls) -> None:
        random = self._random
        while not self.stopping:
            await asyncio.sleep(MEDDLE_EVERY_S)
            name = self._doubtful.pop() if self._doubtful else random.choice(self.names[1:])
            if name in self._gone:
                if now_ms() - self._gone[name] > STEP_MS:
                    del self._gone[name]
                    await self._put(calls, name)
            elif name in self._paused:
                self._paused.discard(name)
                await self._record(calls, name, calls.client.resume_schedule(TOPIC, name))
            else:
                await self._change(calls, name, random.random())

    async def _change(self, calls: RecordedCalls, name: str, dice: float) -> None:
        client = calls.client
        if dice < 0.35:
            await self._record(calls, name, client.schedule(TOPIC, name))
        elif dice < 0.6:
            self._paused.add(name)
            await self._record(calls, name, client.pause_schedule(TOPIC, name))
        elif dice < 0.75:
            step = self._random.randint(1_000, 5_000) * MS
            changed = client.update_schedule(TOPIC, name, interval=step)
            if await self._record(calls, name, changed) is not False:
                self._members[name] = {"interval": step}
        elif dice < 0.9:
            await self._run(calls, name)
        else:
            await self._drop(calls, name)

    async def _drop(self, calls: RecordedCalls, name: str) -> None:
        t0 = now_ms()
        _, ok = await calls.outcome("schedule", calls.client.drop_schedule(TOPIC, name))
        if ok is not False:
            self._gone[name] = now_ms()
            calls.recorder.call("schedule", t0, now_ms(), ok, id=name)

    async def _run(self, calls: RecordedCalls, name: str) -> None:
        t0 = now_ms()
        answer, ok = await calls.outcome("run", calls.client.run_schedule(TOPIC, name))
        if ok is not False:
            at = None if answer is None else int(answer["id"].rpartition("@")[2])
            calls.recorder.call("run", t0, now_ms(), ok, id=name, at=at)

    # ------------------------------------------------------------------ consumers

    async def _consume(self, calls: RecordedCalls) -> None:
        holding: set[asyncio.Task[None]] = set()
        while not self.stopping:
            leased = await calls.receive(TOPIC, 50, WAIT_MS, LEASE_MS)
            self.firings += len(leased)
            at_once: list[Leased] = []
            for each in leased:
                dice = self._random.random()
                if dice < HOLD_SHARE:
                    holding.add(asyncio.create_task(self._hold(calls, each)))
                elif dice < HOLD_SHARE + NACK_SHARE:
                    await calls.settle("nack", [each], delay_ms=100)
                elif dice > FORGET_SHARE + HOLD_SHARE + NACK_SHARE:
                    at_once.append(each)
            await calls.settle("ack", at_once)
            holding = {task for task in holding if not task.done()}
            if not leased:
                # A broker that is away refuses at once.
                await asyncio.sleep(0.01)
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)

    async def _hold(self, calls: RecordedCalls, leased: Leased) -> None:
        await asyncio.sleep(self._random.uniform(*HOLD_S))
        await calls.settle("ack", [leased])
