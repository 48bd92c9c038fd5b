"""A busy machine: the nodes share it with twenty endless loops, and no fault happens.

The leadership should stay where it is. Elections repeat what was in flight, and cost a pause each.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from delaylog.broker.drills.node_log import LEADS, LogMark
from delaylog.broker.drills.rounds import Stage

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
