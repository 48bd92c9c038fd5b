"""Clock steps: the leader's clock is stepped ahead and back, also just before the leader is killed.

A new leader whose clock is behind the old leader's tick has to wait; one whose clock is ahead
releases the messages between at once. By the time in the broker's answers nothing may be early.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from delaylog.broker.drills.faults.kills import kill_leader
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES, Trio

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
