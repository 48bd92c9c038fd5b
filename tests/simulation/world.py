"""One run of a plan: the broker, its clients and its faults in one thread; then the judges.

A run has a beginning (topics are made), a middle in which actors call and faults come, and an end
without faults, in which all that is due has to arrive: time leaps over the years, consumers ack,
and nothing may be left. `run` returns what was violated, with the trace.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from math import ceil
from random import Random
from traceback import format_exception
from typing import Any, Final

from delaylog.broker.engine.deliver.loader import NEAR_SECONDS
from delaylog.broker.engine.limits import Limits
from delaylog.broker.history.model import ScheduleCall
from delaylog.storage.layout import HOUR_MS
from tests.simulation import faults
from tests.simulation.actors import KINDS, Actor
from tests.simulation.broker import Broker, BrokerOptions
from tests.simulation.disk import SimDisk
from tests.simulation.judges import check_histories, check_rot
from tests.simulation.knobs import turned
from tests.simulation.loop import Deadlock, Endless, Process, SimLoop
from tests.simulation.machine import BASE_S, Speed
from tests.simulation.marks import Marks
from tests.simulation.network import Network
from tests.simulation.plan import Plan
from tests.simulation.records import Records

STEPS_MAX: Final = 250_000
DRAIN_S: Final = 600.0
"""The time in which everything due has to arrive once there are no faults."""


@dataclass
class Result:
    """What came of one run."""

    violations: list[tuple[str, str]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    digest: str = ""
    """Of the trace and of all operations of the disk."""
    marks: Counter[str] = field(default_factory=Counter)
    simulated_s: float = 0.0
    steps: int = 0
    calls: int = 0
    delivered: int = 0
    is_given_up: bool = False
    """Whether it took too many steps: small limits can make a broker slow without end."""

    @property
    def kinds(self) -> set[str]:
        """Of the violations."""
        return {kind for kind, _ in self.violations}


class World:
    """Everything of one run that is not the product."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.plan, self.loop = plan, loop
        loop.step_s = plan.options["step_s"]
        self.result = Result()
        self.marks = Marks()
        self._digest = hashlib.sha256()
        self.records = Records(self.now_ms, self.broker_ms)
        options = plan.options
        self.net = Network(loop, Random(f"{plan.seed}/network"), options["delay_s"], copy_context())
        self.broker = Broker(
            loop,
            BrokerOptions(
                limits=Limits(**{"reserve_file_bytes": 1 << 20, **plan.limits}),
                open_hours_max=options["open_hours"],
                fsync=options["fsync"],
                audit=options["audit"],
                archive_hold=options["archive_hold"],
                speed=Speed(
                    options["reading_s"],
                    options["job_s"],
                    options["slow_s"],
                    options["slow_share"],
                ),
            ),
            plan.seed,
            note=self.note,
            violated=self.violated,
        )
        self.broker.clocks.drift = options["drift"]
        self.broker.made_disk = self._observe
        self._observe(self.broker.disk)
        self.topics = [f"t{number}" for number in range(options["topics"])]
        self.groups = {topic: ["default"] for topic in self.topics}
        self.merge_of = dict.fromkeys(self.topics, "keep")
        self.attempts_max = dict.fromkeys(self.topics, 65_535)
        self.horizon_ms = self.broker.options.limits.horizon_ms
        self.full_ms = 0
        """When the disk became full; 0 while it has space."""
        self.seen_ms = self.seen_since_ms = 0
        """The latest time that the broker has answered to a call that began after `seen_since_ms`;
        0 = none. At `seen_since_ms` its clock may have gone back."""
        self.served_ms = 0
        """When the latest process began to serve."""
        self.schedules: dict[tuple[str, str], None] = {}
        self.lease_ms: int = options["lease_ms"]
        self.delivered = 0
        self.calls = 0
        self.answers_left = 0
        """Number of answers until the power fails; 0 = it does not."""
        self.ending = False
        """Whether the run is at its end, where the broker dies no more."""
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._served = asyncio.Event()
        """Set when a process begins to serve."""
        self._high_ms = 0
        self._backlog_ms = 0
        """Messages due before were overdue by a minute after the last leap."""
        self.is_steady = not options["drift"] and not any("clock" in f[1] for f in plan.faults)
        """Whether the broker's clock is the clients'."""

    # ------------------------------------------------------------------ what is observed

    def _observe(self, disk: SimDisk) -> None:
        digest, marks, broker = self._digest, self.marks, self.broker

        def note(kind: str, path: str) -> None:
            digest.update(f"{kind} {path}\n".encode())
            marks.at_operation(broker, kind, path)

        disk.on_operation_of = note

    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.loop.now:.6f} {text}"
        self._digest.update(line.encode())
        self.result.trace.append(line)
        if " is dead" in text and "stopped" not in text:
            self.marks.at_death(self.broker)

    def violated(self, kind: str, text: str) -> None:
        """A promise was broken."""
        self.note(f"VIOLATED {kind}: {text}")
        self.result.violations.append((kind, text))

    # ------------------------------------------------------------------ time

    def now_ms(self) -> int:
        """The clients' clock."""
        return int((BASE_S + self.loop.now) * 1000)

    def broker_ms(self) -> int:
        """The wall clock of the broker's machine."""
        clocks = self.broker.clocks
        now_ms = int((BASE_S + self.loop.now * (1 + clocks.drift) + clocks.step_s) * 1000)
        self._high_ms = max(self._high_ms, now_ms)
        return now_ms

    def high_ms(self) -> int:
        """No clock of the broker has shown a later time, with room for a little."""
        self.broker_ms()
        return self._high_ms + 2_000

    async def think(self, random: Random, share: float = 1.0) -> None:
        """Wait until a client's next call; on a beat, calls of several clients come together."""
        when = self.loop.now + random.expovariate(1 / self.plan.options["think_s"]) * share
        beat_s = self.plan.options["beat_s"]
        if beat_s:
            when = ceil(when / beat_s) * beat_s
        future: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_at(when, future.set_result, None)
        await future

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def leap(self, seconds: float) -> None:
        """The whole machine sleeps, clients as well."""
        self.note(f"a leap of {seconds:.3f} s")
        self.loop.now += seconds
        self._backlog_ms = self.broker_ms() - (NEAR_SECONDS + 1) * 1_000

    def check_order(self, topic: str, messages: list[dict[str, Any]]) -> None:
        """Messages without keys that this process has released come in the order of due times.

        After an outage each hour is loaded by itself, so only those of one hour are compared. After
        a leap, those that are overdue by a minute are a backlog, and the others do not wait for it.
        """
        due_ms = 0
        for each in messages if self.is_steady else ():
            one = self.records.waiting.get((topic, each["id"]))
            if one is None or not one.certain or one.key is not None or each["attempts"] != 1:
                continue
            if one.due > max(self.served_ms, one.known_ms):
                is_passed = one.due < self._backlog_ms + 2_000 and due_ms > self._backlog_ms
                is_before = one.due < due_ms and one.due // HOUR_MS == due_ms // HOUR_MS
                if is_before and not is_passed:
                    self.violated("order", f"{one} after one that was due at {due_ms}")
                due_ms = one.due

    # ------------------------------------------------------------------ calls and faults

    def call_begins(self) -> None:
        """One more call of a client."""
        self.calls += 1
        self.marks.at_call(self.broker)
        for awaited, future in [one for one in self._awaited if one[0] <= self.calls]:
            self._awaited.remove((awaited, future))
            if not future.done():
                future.set_result(None)

    def answered(self) -> None:
        """A client has got an answer of success."""
        if self.answers_left:
            self.answers_left -= 1
            if not self.answers_left:
                self.broker.kill(faults.CUT)

    async def after_calls(self, count: int) -> None:
        """Wait until so many calls were begun."""
        if self.calls < count:
            future: asyncio.Future[None] = self.loop.create_future()
            self._awaited.append((count, future))
            await future

    async def accept_clock(self, actor: Actor) -> None:
        """The broker follows its wall clock again."""
        began = self.now_ms()
        self.records.mark("clock", began, self.now_ms() + 1_000)
        await actor.call("POST", "/v1/clock", {"accept": True})
        self._clock_may_go_back()
        self.records.mark("clock", began, self.now_ms())

    def _clock_may_go_back(self) -> None:
        self.seen_ms, self.seen_since_ms = 0, self.now_ms()

    # ------------------------------------------------------------------ the run

    async def main(self) -> None:
        """All of it."""
        plan = self.plan
        supervisor = self.loop.create_task(self._supervise())
        await self._serves()
        await self._begin()
        tasks = [
            self.loop.create_task(self._act(name, kind, count))
            for name, (kind, count) in plan.actors.items()
        ]
        bad = [
            self.loop.create_task(self._fault(number, *fault))
            for number, fault in enumerate(plan.faults)
        ]
        await asyncio.gather(*tasks)
        for task in bad:
            task.cancel()
        await asyncio.gather(*bad, return_exceptions=True)
        await self._end()
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        await self.broker.stop()
        self.broker.restart_after("everything", 0)
        for finding in self.broker.verify():
            self.violated("verify", f"after a clean stop: {finding.line()}")
        check_rot(self, Random(f"{plan.seed}/rot"))

    async def _act(self, name: str, kind: str, count: int) -> None:
        random = Random(f"{self.plan.seed}/{name}")
        actor = Actor(self, name, random)
        for _ in range(count):
            await self.think(random)
            await self._serves()
            await KINDS[kind](actor)
        actor.client.close()

    async def _fault(self, number: int, at: int, kind: str, seed: int) -> None:
        random = Random(f"{seed}/{kind}")
        await self.after_calls(at)
        await self.pause(random.random() * random.choice((0.0, 0.001, 0.05)))
        self.note(f"fault {number}: {kind}")
        self.marks.reached(f"fault {kind}")
        await faults.KINDS[kind](self, random)

    async def _supervise(self) -> None:
        """Start the broker again whenever it has ended, as a service manager does."""
        broker = self.broker
        broker.start()
        random = Random(f"{self.plan.seed}/supervisor")
        stepped_s = broker.clocks.step_s
        while True:
            broker.changed.clear()
            process = broker.process
            if process is None or not process.is_dead:
                if broker.serves:
                    self.net.process = process
                    self._clock_may_go_back()
                    self.served_ms = self.high_ms()
                    self._served.set()
                await broker.changed.wait()
                continue
            died = self.now_ms()
            why = broker.why_ended
            self.net.lose_all(why, process)
            survival = faults.survival_of(self, random, why)
            self.note(f"the disk keeps {survival}")
            if survival != "everything":
                self.marks.reached("power cut")
            broker.restart_after(survival, random.randrange(1 << 30))
            if random.random() < 0.5:
                for finding in broker.verify():
                    self.violated("verify", f"after {why}: {finding.line()}")
                check_rot(self, random)
            faults.before_restart(self, random)
            await self.pause(random.random() * random.choice((0.01, 1.0, 30.0)))
            broker.start()
            while not broker.serves and not (broker.process and broker.process.is_dead):
                broker.changed.clear()
                await broker.changed.wait()
            # Leases of a receive that was answered before its frame was synced may be lost. When
            # others end is known to the next process by the wall clock alone.
            if why != "stopped" or broker.clocks.step_s > stepped_s:
                # What could not be logged for lack of space is missed if the process then ends.
                self.records.mark("kill", self.full_ms or died, self.now_ms())
            stepped_s = broker.clocks.step_s

    async def _serves(self) -> None:
        """Wait for a broker: calls to a dead one would say nothing."""
        while not (self.broker.serves and self.net.process is self.broker.process):
            self._served.clear()
            await self._served.wait()

    async def _begin(self) -> None:
        """Make the topics and groups, as far as limits allow."""
        options, actor = self.plan.options, Actor(self, "setup", Random(f"{self.plan.seed}/setup"))
        self.calls -= 1_000_000  # Faults come later.
        settings = {
            "order": options["order"],
            "merge": options["merge"],
            "merge_leased": options["merge_leased"],
            "lease_ms": options["lease_ms"],
            "ended_keep_ms": options["ended_keep_ms"],
            "max_retry": options["retries"],
            "dead_keep_ms": 90 * 86_400_000,
            "backoff": {"first_ms": options["backoff_ms"], "max_ms": 5_000},
        }
        for topic in self.topics:
            self.records.items[topic] = []
            ok, answer = await actor.call("PUT", f"/v1/topics/{topic}", settings)
            if not (ok or self.plan.limits):
                self.violated("answer", f"no topic: {answer}")
            if ok:
                self.merge_of[topic] = options["merge"]
                self.attempts_max[topic] = options["retries"] + 1
            for number in range(1, options["groups"]):
                ok, _ = await actor.call("PUT", f"/v1/topics/{topic}/groups/g{number}", {})
                if ok:
                    self.groups[topic].append(f"g{number}")
        actor.client.close()
        for topic in self.topics:
            for group in self.groups[topic]:
                now = self.now_ms()
                self.records.of(topic).extend([faults.group_mark(now, group)])
        self.calls = 0

    async def _end(self) -> None:
        """No more faults: everything arrives, and nothing is left."""
        self.ending = True
        self.note("the end begins: only one more fault")
        faults.heal(self)
        await self._serves()
        actor = Actor(self, "end", Random(f"{self.plan.seed}/end"))
        actor.client.patience_s = 120.0
        await self._insist(actor, "DELETE", "/v1/hold")
        for topic in self.topics:
            await self._insist(actor, "POST", f"/v1/topics/{topic}/resume", {})
            # Appends to the log, which has to go on.
            await self._insist(actor, "PATCH", f"/v1/topics/{topic}", {"ended_keep_ms": 2_000})
        for topic, name in self.schedules:
            t0 = self.now_ms()
            if await self._insist(actor, "DELETE", f"/v1/topics/{topic}/schedules/{name}"):
                call = ScheduleCall(t0, self.now_ms(), "schedule", True, name)
                self.records.of(topic).append(call)
        if self.broker.ahead_ms():
            await self.accept_clock(actor)
        random = actor.random
        await faults.KINDS[random.choice(faults.LAST)](self, random)
        await self._serves()
        # After a step of its clock the broker may expire what clients still wait for.
        late_ms = 60_000 if self.is_steady else 3_700_000
        target_ms = max(self.records.latest_due_ms, self.high_ms()) + late_ms
        await self._note_dead(actor)
        for left in range(random.choice((0, 1, 3)), -1, -1):
            # By both clocks: what the broker has expired must be so for clients, too.
            behind_ms = min(self.broker_ms(), self.now_ms())
            ahead_s = (target_ms - behind_ms) / 1000 / (1 + min(self.broker.clocks.drift, 0))
            if ahead_s > 0:
                self.leap(ahead_s if left == 0 else ahead_s * random.random() ** 3)
            await self.pause(1.0)
            await self._drain(actor, last=left == 0)
        self.records.mark("end", self.now_ms())

    async def _insist(self, actor: Actor, method: str, path: str, body: Any = None) -> bool:
        """Repeat a call until it is carried out, or there is nothing to do; whether it was."""
        for _ in range(100):
            ok, answer = await actor.call(method, path, body)
            if ok or (answer is not None and answer.status == 404):
                return bool(ok)
            await self.pause(0.5)
        self.violated("liveness", f"{method} {path} is not carried out")
        return False

    async def _drain(self, actor: Actor, *, last: bool) -> None:
        """Ack all that comes, until nothing is due any more."""
        deadline = self.loop.now + DRAIN_S
        for topic in self.topics:
            for group in self.groups[topic]:
                while True:
                    limits = self.plan.limits
                    # An ack of all of them has to fit into a request.
                    most = min(limits.get("request_bytes_max", 40_000) // 40, 1_000)
                    most = min(limits.get("receive_max", most), most)
                    asked = {"max": most, "wait_ms": 1_000}
                    found = await actor.receive(topic, group, asked)
                    await actor.settle("ack", topic, group, found)
                    if found:
                        continue
                    await self.pause(0.05)
                    path = f"/v1/topics/{topic}/stats?delay_buckets=false&group={group}"
                    ok, answer = await actor.call("GET", path)
                    if ok is False and answer is not None and answer.status == 404:
                        break
                    if ok and answer is not None:
                        counts = answer.json["counts"]
                        late = (
                            counts["ready"] + counts["leased"] + (counts["waiting"] if last else 0)
                        )
                        if not late:
                            break
                    if self.loop.now > deadline:
                        text = answer.json if answer is not None else answer
                        self.violated("liveness", f"after {DRAIN_S} s {topic}/{group}: {text}")
                        break
        await self._note_dead(actor)

    async def _note_dead(self, actor: Actor) -> None:
        for topic in self.topics:
            for group in self.groups[topic]:
                t0 = self.now_ms()
                ok, answer = await actor.call(
                    "GET", f"/v1/topics/{topic}/dead?group={group}&limit=1000"
                )
                if ok and answer is not None:
                    for each in answer.json["messages"]:
                        self.marks.reached("a message was dead")
                        self.records.of(topic).append(
                            faults.dead_call(t0, self.now_ms(), each["id"])
                        )


class _Errors(logging.Handler):
    """Errors that the product logs with a traceback are its bugs."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world, info = self._world, record.exc_info
        world.note(f"log: {record.getMessage()}")
        process = world.broker.process
        if record.levelno < logging.ERROR or (process is not None and process.is_dead):
            return
        if info and info[1] is not None and not faults.is_expected(world, info[1]):
            world.violated("log", record.getMessage() + "".join(format_exception(info[1])))


@contextmanager
def _quiet(world: World) -> Iterator[None]:
    """The product's log goes to the trace, and nothing of the dead is printed."""
    logger, handler = logging.getLogger("delaylog"), _Errors(world)
    before, hook = logger.propagate, sys.unraisablehook
    logger.addHandler(handler)
    logger.propagate = False
    sys.unraisablehook = lambda _: None
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if world.broker.process is not None:
            world.broker.process.die()
            world.broker.process.bury()
        with warnings.catch_warnings():
            # Coroutines of the dead that never began.
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.enable()
            gc.collect()
        gc.unfreeze()
        sys.unraisablehook = hook
        logger.removeHandler(handler)
        logger.propagate = before


def run(plan: Plan) -> Result:
    """Run a plan, and judge it."""
    loop = SimLoop(STEPS_MAX)
    asyncio.set_event_loop(loop)
    with turned(plan.knobs):
        world = World(plan, loop)
        result = world.result

        def failed(_: Any, context: dict[str, Any]) -> None:
            error = context.get("exception")
            process = world.broker.process
            if process is None or process.is_dead:
                return
            text = context.get("message", "")
            if error is not None:
                text += "".join(format_exception(error))
            world.violated("loop", text)

        loop.set_exception_handler(failed)
        with _quiet(world):
            try:
                loop.run_until_complete(world.main())
            except Deadlock as error:
                world.violated("deadlock", str(error))
            except Endless as error:
                result.is_given_up = True
                if world.ending:
                    world.violated("liveness", str(error))
            if not result.is_given_up:
                check_histories(world)
    result.digest = world._digest.hexdigest()
    result.marks = world.marks.counts
    result.simulated_s, result.steps = loop.now, loop.steps
    result.calls, result.delivered = world.calls, world.delivered
    asyncio.set_event_loop(None)
    loop.close()
    return result


__all__ = ["Process", "Result", "World", "run"]
