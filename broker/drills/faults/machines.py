"""Faults of machines: a busy processor, a clock that is stepped, a slow disk.

A busy machine runs twenty endless loops beside the nodes, and no fault happens. The leadership
should stay where it is: elections repeat what was in flight, and cost a pause each.

The leader's clock is stepped ahead and back, also just before the leader is killed. A new leader
whose clock is behind the old leader's tick has to wait; one whose clock is ahead releases the
messages between at once. By the time in the broker's answers nothing may be early.

strace makes every sync of one node take a tenth of a second longer, or hang. It also slows down all
other system calls of the process, so the leader may change. That is allowed; losing messages, or
repeating more than the bound, is not.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from delaylog.broker.drills.faults.processes import kill_leader
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.node_watch import LEADS, LogMark
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES, Trio

# ------------------------------------------------------------------------------------ processor

LOOPS: Final = 20
BUSY_S: Final = 60.0
CHANGES_MAX: Final = 1


async def busy_machine(stage: Stage) -> None:
    """Keep the machine busy for a minute, and count the changes of the leader."""
    leader = await stage.trio.leader()
    logs = LogMark(stage.trio.nodes)
    async with stage.undisturbed("", leader) as one:
        async with _busy_loops():
            await asyncio.sleep(BUSY_S)
        changes = len(logs.entries(LEADS))
        await stage.all_back(one)
    stage.notes.append(f"{changes} changes of the leader in {BUSY_S:.0f} s")
    if changes > CHANGES_MAX:
        stage.broken.append(
            f"round {len(stage.rounds)}: the leader changed {changes} times in {BUSY_S:.0f} s "
            f"beside {LOOPS} busy loops; {CHANGES_MAX} is allowed"
        )


@asynccontextmanager
async def _busy_loops() -> AsyncIterator[None]:
    loops: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(LOOPS):
            command = (sys.executable, "-S", "-c", "while True: pass")
            loops.append(await asyncio.create_subprocess_exec(*command))
        yield
    finally:
        for each in loops:
            each.kill()
        await asyncio.gather(*(each.wait() for each in loops))


# ---------------------------------------------------------------------------------------- clock

STEP_MS: Final = 3_000
"""Large enough to count as a step of the clock, not as drift."""
KILLED_STEP_MS: Final = 800
"""Too small to count as a step: the next leader is behind or ahead by it."""


class SteppedTrio(Trio):
    """Nodes whose clocks can be stepped."""

    def __init__(self, folder: Path) -> None:
        self._clocks = {node: folder / f"node-{node}.clock" for node in NODES}
        super().__init__(folder, program=self._program)

    def _program(self, node: int) -> list[str]:
        module = "delaylog.broker.drills.faults.stepped_node"
        return [sys.executable, "-P", "-m", module, str(self._clocks[node])]

    def step(self, node: int, offset_ms: int) -> None:
        """Set the offset of a node's clock; a node that is down starts with the new offset."""
        self._clocks[node].write_text(str(offset_ms))
        if self.nodes[node].running:
            self.nodes[node].send_signal(signal.SIGUSR2)


async def clock_step(stage: Stage) -> None:
    """Step the leader's clock. In turn: ahead and back; ahead, then kill; behind, then kill."""
    trio = stage.trio
    assert isinstance(trio, SteppedTrio)
    turn = len(stage.rounds) % 3
    leader = await trio.leader()
    if turn == 0:
        await _ahead_and_back(stage, trio, leader)
        return
    sign, where = (1, "ahead") if turn == 1 else (-1, "behind")
    _mark_step(stage, trio, leader, sign * KILLED_STEP_MS)
    await stage.calm()

    def reset_clock(node: int) -> None:
        trio.step(node, 0)
        stage.recorder.mark("clock", int(wall_ms()))

    await kill_leader(stage, f"{where}, then killed", killed=reset_clock)


async def _ahead_and_back(stage: Stage, trio: SteppedTrio, leader: int) -> None:
    async with stage.undisturbed("ahead and back", leader) as one:
        _mark_step(stage, trio, leader, STEP_MS)
        await stage.calm()
        _mark_step(stage, trio, leader, 0)
        # The broker's clock stands still until the wall clock has caught up.
        await asyncio.sleep(STEP_MS / 1000)
        await stage.all_back(one)


def _mark_step(stage: Stage, trio: SteppedTrio, node: int, offset_ms: int) -> None:
    began_ms = int(wall_ms())
    trio.step(node, offset_ms)
    stage.recorder.mark("clock", began_ms, until=int(wall_ms()))


# ----------------------------------------------------------------------------------------- disk

SLOW_S: Final = 2.0
SYNC_DELAY_US: Final = 100_000
HANG_S: Final = 12.0
"""Longer than the time within which another node has to serve."""
ATTACH_TIMEOUT_S: Final = 10.0
HELP: Final = (
    "The drill `slow-disk` delays the syncs of a node with strace: install strace, and allow "
    "ptrace (as root, or docker run --cap-add SYS_PTRACE)."
)


def need_strace() -> None:
    """Raise DrillError if strace is not installed."""
    if shutil.which("strace") is None:
        raise DrillError(f"`strace` is not installed. {HELP}")


async def slow_disk(stage: Stage) -> None:
    """Slow down the disk of a follower and of the leader, then let the leader's hang, in turn."""
    leader, followers = await stage.trio.others()
    what, node, last_s, delay_us = (
        ("follower's disk slow", stage.random.choice(followers), SLOW_S, SYNC_DELAY_US),
        ("leader's disk slow", leader, SLOW_S, SYNC_DELAY_US),
        ("leader's disk hangs", leader, HANG_S, 1_000_000 * int(10 * HANG_S)),
    )[len(stage.rounds) % 3]
    async with stage.undisturbed(what, leader) as one:
        process = stage.trio.nodes[node].process_id
        assert process is not None
        async with _slow_syncs(process, delay_us):
            await asyncio.sleep(last_s)
        await stage.all_back(one)


@asynccontextmanager
async def _slow_syncs(process: int, delay_us: int) -> AsyncIterator[None]:
    calls = "fdatasync,fsync"
    strace = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-p", str(process), "-o", "/dev/null"),
        *("-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter={delay_us}"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert strace.stderr is not None
    try:
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                said = (await strace.stderr.readline()).decode(errors="replace").strip()
        except TimeoutError:
            said = "it printed nothing"
        if "attached" not in said:
            raise DrillError(f"strace cannot trace process {process}: {said}. {HELP}")
        yield
    finally:
        if strace.returncode is None:
            strace.send_signal(signal.SIGINT)
        # Read the rest of its output, which would fill the pipe and block it.
        await strace.communicate()
