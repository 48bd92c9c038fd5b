"""The planned handover."""

from __future__ import annotations

import asyncio

from delaylog.broker.drills.node_log import LogMark
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms

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
