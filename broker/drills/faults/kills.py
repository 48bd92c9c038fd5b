"""SIGKILL: of the leader, and of all three nodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES


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
