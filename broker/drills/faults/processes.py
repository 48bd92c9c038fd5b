"""Faults of processes: kills, pauses, planned handovers, a blank disk, and many failovers.

`failovers` has many idempotency keys in memory: what an unplanned failover leaks adds up. The
leader is stopped there, not killed, since the end of a process would hide what it has leaked.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.node_watch import LogMark
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES
from delaylog.broker.drills.witness import Witness

# --------------------------------------- SIGKILL: of the leader, and of all three nodes at once


async def kill_leader(
    stage: Stage, what: str = "", *, killed: Callable[[int], None] = lambda leader: None
) -> None:
    """Kill the leader, and start it again once another node serves."""
    leader = await stage.trio.leader()
    fault_ms = wall_ms()
    await stage.trio.nodes[leader].kill()
    killed(leader)
    after_ms = wall_ms()
    one = await stage.serving_again(Strike(what, leader, fault_ms, after_ms, fault_ms))
    await asyncio.sleep(stage.random.uniform(0.0, 0.3))
    await stage.all_back(one)


async def restart_all(stage: Stage) -> None:
    """Kill all three nodes at once, and start them at once."""
    leader = await stage.trio.leader()
    fault_ms = wall_ms()
    await asyncio.gather(*(stage.trio.nodes[node].kill() for node in NODES))
    after_ms = wall_ms()
    await stage.trio.start_all()
    one = await stage.serving_again(Strike("", leader, fault_ms, after_ms, fault_ms))
    await stage.all_back(one)


# ------------------------------ SIGSTOP: the leader is stopped for some time and then continues

STOPPED_S: Final = 2.0


async def stop_leader(stage: Stage, stopped_s: float = STOPPED_S) -> None:
    """Stop the leader. When it continues, it finds calls in its sockets and must not serve them."""
    trio = stage.trio
    leader = await trio.leader()
    node = trio.nodes[leader]
    logs = LogMark(trio.nodes)
    fault_ms = wall_ms()
    node.send_signal(signal.SIGSTOP)
    try:
        async with Witness(trio.urls[leader], stage) as witness:
            strike = Strike("", leader, fault_ms, wall_ms(), fault_ms)
            await asyncio.sleep(stopped_s)
            node.send_signal(signal.SIGCONT)
            who = f"node {leader}, stopped for {stopped_s:.1f} s,"
            await witness.report_answers(who, leader, logs)
    finally:
        node.send_signal(signal.SIGCONT)
    one = await stage.serving_again(strike)
    await stage.all_back(one)


# ------------------------------------------------------------------------- the planned handover

SETTLE_S = 0.5
"""How long after the next leader has served pauses are still measured."""


async def hand_over(stage: Stage) -> None:
    """Ask the leader to hand over to one of the followers."""
    trio = stage.trio
    leader, followers = await trio.others()
    logs = LogMark(trio.nodes)
    fault_ms = wall_ms()
    await trio.hand_over(leader, stage.random.choice(followers))
    new = await trio.leader(followers)
    after_ms = wall_ms()
    strike = Strike("", leader, fault_ms, after_ms, after_ms, planned=True)
    one = await stage.serving_again(strike)
    await asyncio.sleep(SETTLE_S)
    one.drift = logs.drift()
    if one.drift is None:
        one.note = f"node {leader} did not hand over: node {new} was elected"
        stage.notes.append(one.note)
    await stage.all_back(one)


# ---------------------------------------- a follower loses its folder and becomes a voter again


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


# --------------------------------------------------------------------- many unplanned failovers

KEYS: Final = 50_000
PATH: Final = "/v1/topics/drill-keys/messages"
DELAY_MS: Final = 24 * 3_600_000
"""The messages stay, and nobody receives them."""
CALLS: Final = 64
"""Sends of keys at the same time."""
PARTS: Final = 40
"""A broker forgets a key that was not used for ten minutes, so every round uses a part of them."""
FAILOVER_STOPPED_S: Final = 1.2
FREED_S: Final = 1.0
"""Until the node that was stopped has freed what it had as the leader."""


async def failovers(stage: Stage) -> None:
    """Stop the leader for a moment, so that another node leads."""
    at = len(stage.rounds)
    await _use_keys(stage, range(at % PARTS, KEYS, PARTS) if at else range(KEYS))
    await stop_leader(stage, FAILOVER_STOPPED_S)
    await asyncio.sleep(FREED_S)


async def _use_keys(stage: Stage, keys: Iterable[int]) -> None:
    left = iter(keys)
    body = json.dumps({"body": "one", "delay_ms": DELAY_MS}).encode()

    async def use_some() -> None:
        for key in left:
            headers = {"Content-Type": "application/json", "Idempotency-Key": f"drill {key}"}
            await stage.load.insist(PATH, body, headers, method="POST")

    await asyncio.gather(*(use_some() for _ in range(CALLS)))
