"""A slow disk: strace makes every sync of one node take a tenth of a second longer, or hang.

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
