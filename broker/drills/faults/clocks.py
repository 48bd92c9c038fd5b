"""Clocks: the leader's is stepped ahead and back, also just before it is killed.

A successor whose clock is behind the cluster's tick has to wait for it, one that is ahead hands
out what lies between. Nothing may come early by the time that the broker states.
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
"""Beyond what counts as drift."""
KILLED_STEP_MS: Final = 800
"""Less than a step: the successor waits for so long, or is so much ahead."""


class SteppedTrio(Trio):
    """Nodes whose clocks can be stepped."""

    def __init__(self, folder: Path) -> None:
        self._clocks = {node: folder / f"node-{node}.clock" for node in NODES}
        super().__init__(folder, program=self._program)

    def _program(self, node: int) -> list[str]:
        module = "delaylog.broker.drills.faults.stepped_node"
        return [sys.executable, "-P", "-m", module, str(self._clocks[node])]

    def step(self, node: int, offset_ms: int) -> None:
        """From now on its clock is so far off; a node that is down starts with it."""
        self._clocks[node].write_text(str(offset_ms))
        if self.nodes[node].running:
            self.nodes[node].send_signal(signal.SIGUSR2)


async def clock_step(stage: Stage) -> None:
    """By turns: the leader goes ahead and comes back; it is killed ahead; it is killed behind."""
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

    def is_right_again(node: int) -> None:
        trio.step(node, 0)
        stage.recorder.mark("clock", int(wall_ms()))

    await kill_leader(stage, f"{where}, then killed", killed=is_right_again)


async def _ahead_and_back(stage: Stage, trio: SteppedTrio, leader: int) -> None:
    async with stage.undisturbed("ahead and back", leader) as one:
        _mark_step(stage, trio, leader, STEP_MS)
        await stage.calm()
        _mark_step(stage, trio, leader, 0)
        # Its time stands still until the wall clock has caught up.
        await asyncio.sleep(STEP_MS / 1000)
        await stage.all_back(one)


def _mark_step(stage: Stage, trio: SteppedTrio, node: int, offset_ms: int) -> None:
    began_ms = int(wall_ms())
    trio.step(node, offset_ms)
    stage.recorder.mark("clock", began_ms, until=int(wall_ms()))
