"""A blank disk: a follower loses its folder and becomes a voter again; the leader is killed."""

from __future__ import annotations

import asyncio
import shutil
import time

from delaylog.broker.drills.faults.kills import kill_leader
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.rounds import Stage


async def blank_node(stage: Stage) -> None:
    """Delete a follower's folder, wait until it is a voter again, and kill the leader.

    The new voter's vote must count at once: it is one of the two nodes left.
    """
    trio = stage.trio
    _, followers = await trio.others()
    node = stage.random.choice(followers)
    blank = trio.nodes[node]
    status = await blank.stop()
    if status != 0:
        raise DrillError(f"SIGTERM ended node {node} with status {status}")
    await asyncio.to_thread(shutil.rmtree, blank.data_dir)
    began = time.monotonic()
    await trio.start(node)
    caught_up_s = await trio.caught_up(node)
    await trio.all_vote()
    stage.notes.append(
        f"node {node}, blank, had caught up after {caught_up_s:.1f} s and was a voter after "
        f"{time.monotonic() - began:.1f} s"
    )
    await stage.calm()
    await kill_leader(stage)
