"""A slow disk: strace makes every sync of one node take a tenth of a second longer.

strace also slows down all other system calls of the process, so the leader may change. That is
allowed; losing messages, or repeating more than the bound, is not.
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
    "The drill `slow-disk` delays the syncs of a node with strace: install strace, and allow "
    "ptrace (as root, or docker run --cap-add SYS_PTRACE)."
)


def need_strace() -> None:
    """Raise DrillError if strace is not installed."""
    if shutil.which("strace") is None:
        raise DrillError(f"`strace` is not installed. {HELP}")


async def slow_disk(stage: Stage) -> None:
    """Slow down the disk of a follower and of the leader, in turn."""
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
            said = "it printed nothing"
        if "attached" not in said:
            raise DrillError(f"strace cannot trace process {process}: {said}. {HELP}")
        yield
    finally:
        if strace.returncode is None:
            strace.send_signal(signal.SIGINT)
        # Read the rest of its output, which would fill the pipe and block it.
        await strace.communicate()
