"""A blank disk: a follower loses its folder and becomes a voter again; the leader is killed."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Final

from delaylog.broker.cluster.members.folder_owner import META
from delaylog.broker.drills.faults.kills import kill_leader
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.rounds import Stage
from delaylog.replication.meta import load_meta
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem

READMIT_DEADLINE_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05


async def blank_node(stage: Stage) -> None:
    """Delete a follower's folder, wait until it is a voter again, and kill the leader.

    The new voter's vote must count at once: it is one of the two nodes left.
    """
    trio = stage.trio
    leader, followers = await trio.others()
    blank = trio.nodes[stage.random.choice(followers)]
    node = next(number for number, broker in trio.nodes.items() if broker is blank)
    status = await blank.stop()
    if status != 0:
        raise DrillError(f"SIGTERM ended node {node} with status {status}")
    await asyncio.to_thread(shutil.rmtree, blank.data_dir)
    began = time.monotonic()
    await trio.start(node)
    caught_up_s = await trio.caught_up(node)
    while not _votes(str(blank.data_dir)):
        if time.monotonic() - began > READMIT_DEADLINE_S:
            text = f"node {node}, blank, is not a voter after {READMIT_DEADLINE_S:.0f} s"
            raise DrillError(f"{text}\n{trio.nodes[leader].log_tail()}")
        await asyncio.sleep(LOOK_EVERY_S)
    stage.notes.append(
        f"node {node}, blank, had caught up after {caught_up_s:.1f} s and was a voter after "
        f"{time.monotonic() - began:.1f} s"
    )
    # Its vote counts from the next epoch on, which the leader begins by itself.
    await stage.calm()
    await kill_leader(stage)


def _votes(folder: str) -> bool:
    meta = load_meta(ReadOnlyFileSystem(), f"{folder}/{META}")
    return meta is not None and meta.voter
