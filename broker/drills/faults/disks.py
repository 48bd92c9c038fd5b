"""A slow disk: every sync of one node takes a tenth of a second longer, by strace on its process.

strace also slows every other system call of the process down, so the node is a slow one in all;
the leader may well change. That is allowed, losing or repeating anything beyond bounds is not.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.rounds import Stage

SLOW_S: Final = 2.0
SYNC_DELAY_US: Final = 100_000
ATTACH_TIMEOUT_S: Final = 10.0
HELP: Final = (
    "The drill `slow-disk` delays the syncs of a node by strace: install strace, and allow ptrace "
    "(as root, or docker run --cap-add SYS_PTRACE)."
)


def need_strace() -> None:
    """Raise DrillError where there is none."""
    if shutil.which("strace") is None:
        raise DrillError(f"there is no `strace` here. {HELP}")


async def slow_disk(stage: Stage) -> None:
    """By turns: a follower's disk, the leader's."""
    leader, followers = await stage.trio.others()
    if len(stage.rounds) % 2 == 0:
        what, node = "follower's disk slow", stage.random.choice(followers)
    else:
        what, node = "leader's disk slow", leader
    async with stage.undisturbed(what, leader) as one:
        process = stage.trio.nodes[node].process_id
        assert process is not None
        async with _slow_syncs(process):
            await asyncio.sleep(SLOW_S)
        await stage.all_back(one)


@asynccontextmanager
async def _slow_syncs(process: int) -> AsyncIterator[None]:
    calls = "fdatasync,fsync"
    strace = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-p", str(process), "-o", "/dev/null"),
        *("-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter={SYNC_DELAY_US}"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert strace.stderr is not None
    try:
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                said = (await strace.stderr.readline()).decode(errors="replace").strip()
        except TimeoutError:
            said = "it said nothing"
        if "attached" not in said:
            raise DrillError(f"strace cannot trace process {process}: {said}. {HELP}")
        yield
    finally:
        if strace.returncode is None:
            strace.send_signal(signal.SIGINT)
        # What it still says would fill the pipe.
        await strace.communicate()
