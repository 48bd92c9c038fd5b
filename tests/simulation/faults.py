"""The faults of a run: what happens to the broker's process, disk, clock and connections.

Each is a function of the world and of random numbers of its own. At the end `heal` takes all back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Final

from delaylog.broker.history import Call, Mark
from delaylog.storage.errors import DiskFailedError, DiskFullError
from tests.simulation.loop import Process
from tests.simulation.network import Lost
from tests.storage.fake_disk import DiskCrashed, Survival

if TYPE_CHECKING:
    from tests.simulation.world import World

CUT: Final = "power cut"
LAST: Final = ("kill", CUT, CUT, "stop")
"""Each run has one of these before its end."""


def survival_of(world: World, random: Random, why: str) -> Survival:
    """What the disk keeps after the end of a process."""
    if why == CUT or why == "the disk crashed":
        if world.plan.options["fsync"] == "interval":
            # A power cut may lose what was acknowledged within the last 50 ms.
            return "everything"
        return random.choice(("nothing", "prefix", "sectors", "sectors"))
    return "everything"


def before_restart(world: World, random: Random) -> None:
    """A restart may be cut off, too."""
    if world.ending:
        return
    if any(fault[1] == "cut in recovery" for fault in world.plan.faults) and random.random() < 0.6:
        world.broker.disk.crash_at = world.broker.disk.count + random.randint(1, 60)


def heal(world: World) -> None:
    """No fault lasts."""
    disk, process = world.broker.disk, world.broker.process
    disk.full_share = 0.0
    disk.crash_at, disk.fail_at = 0, frozenset()
    world.answers_left = 0
    world.loop.before_step = lambda _: None
    if process is not None and process.is_frozen:
        world.loop.thaw(process)


def is_expected(world: World, error: BaseException) -> bool:
    """Whether a fault of the disk explains an error that was logged."""
    return isinstance(error, (DiskCrashed, DiskFailedError, DiskFullError))


def group_mark(now_ms: int, group: str) -> Mark:
    """A group exists from now on."""
    return Mark("group", now_ms, now_ms, group=group)


def dead_call(t0: int, t1: int, name: str) -> Call:
    """A client saw a dead letter."""
    return Call(t0, t1, "dead", True, name)


async def _kill(world: World, random: Random) -> None:
    world.broker.kill("kill -9")


async def _power_cut(world: World, random: Random) -> None:
    world.broker.kill(CUT)


async def _cut_at_operation(world: World, random: Random) -> None:
    disk = world.broker.disk
    disk.crash_at = disk.count + random.randint(1, random.choice((3, 30, 200)))


async def _cut_at_answer(world: World, random: Random) -> None:
    world.answers_left = random.randint(1, random.choice((1, 4)))


async def _kill_at_step(world: World, random: Random) -> None:
    left = random.randint(1, random.choice((10, 300)))
    power = random.random() < 0.5

    def count(process: Process) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            world.loop.before_step = lambda _: None
            if process is world.broker.process:
                world.broker.kill(CUT if power else "kill -9")

    world.loop.before_step = count


async def _cut_in_recovery(world: World, random: Random) -> None:
    world.broker.kill(CUT)


async def _stop(world: World, random: Random) -> None:
    if world.broker.serves:
        await world.broker.stop()


async def _full(world: World, random: Random) -> None:
    disk, world.full_ms = world.broker.disk, world.now_ms()
    disk.full_share = random.choice((1.0, 0.5))
    await world.after_calls(world.calls + random.randint(1, random.choice((5, 50))))
    await world.pause(random.random() * random.choice((0.5, 10.0)))
    world.note("there is space again")
    disk.full_share = world.broker.disk.full_share = 0.0
    world.full_ms = 0


async def _failed_operation(world: World, random: Random) -> None:
    disk = world.broker.disk
    if world.plan.options["fsync"] == "interval":
        # A failed sync may lose what was acknowledged since the last one.
        return
    first = disk.count + random.randint(1, random.choice((5, 100)))
    disk.fail_at = range(first, first + 1)


async def _clock(world: World, random: Random, sign: int) -> None:
    step = sign * random.random() * random.choice((1.0, 60.0, 7_200.0, 86_400.0))
    now = world.now_ms()
    world.broker_ms()
    world.broker.clocks.step_s += step
    world.note(f"the wall clock steps by {step:.3f} s")
    world.broker_ms()
    world.marks.reached("the clock jumped ahead" if sign > 0 else "the clock was set back")
    world.records.mark("clock", now)


async def _clock_ahead(world: World, random: Random) -> None:
    await _clock(world, random, 1)


async def _clock_back(world: World, random: Random) -> None:
    await _clock(world, random, -1)


async def _freeze(world: World, random: Random) -> None:
    process = world.broker.process
    if process is None or process.is_dead:
        return
    process.is_frozen = True
    await world.pause(random.random() * random.choice((0.05, 2.0, 30.0)))
    world.note("the process goes on")
    if process.is_frozen:
        world.loop.thaw(process)


async def _leap(world: World, random: Random) -> None:
    world.leap(random.random() * random.choice((1.0, 60.0, 7_200.0, 86_400.0 * 3, 86_400.0 * 400)))


async def _cut_connections(world: World, random: Random) -> None:
    for connection in list(world.net.open):
        if random.random() < 0.7:
            world.marks.reached("an answer was lost")
            connection.close(Lost("cut"))


async def _silent_connections(world: World, random: Random) -> None:
    for connection in list(world.net.open):
        if random.random() < 0.7:
            world.marks.reached("an answer was lost")
            connection.is_silent = True


Fault = Callable[["World", Random], Awaitable[None]]

KINDS: Final[dict[str, Fault]] = {
    "kill": _kill,
    "power cut": _power_cut,
    "cut at operation": _cut_at_operation,
    "cut at answer": _cut_at_answer,
    "kill at step": _kill_at_step,
    "cut in recovery": _cut_in_recovery,
    "stop": _stop,
    "full": _full,
    "failed operation": _failed_operation,
    "clock ahead": _clock_ahead,
    "clock back": _clock_back,
    "freeze": _freeze,
    "leap": _leap,
    "cut connections": _cut_connections,
    "silent connections": _silent_connections,
}
