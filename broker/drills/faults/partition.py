"""Partition: the leader is cut off from both followers, or one follower from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.drills.faults.namespaces import NetworkTrio
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.node_log import LogMark
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.witness import Witness
from delaylog.replication.timing import Timing

CUT_S: Final = 2.0
GATE_MS: Final = Timing().gate_ms
WITNESS_AFTER_MS: Final = 100
"""So long after the last acknowledged send the gate has closed: the leader that was cut off must
not deliver messages any more."""


async def partition(stage: Stage) -> None:
    """Cut off the leader and a follower, in turn."""
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    if len(stage.rounds) % 2 == 0:
        await cut_leader(stage, "leader cut off", trio.cut, trio.heal, CUT_S)
    else:
        await cut_follower(stage, trio)


async def cut_leader(
    stage: Stage, what: str, cut: Callable[[int], None], heal: Callable[[int], None], cut_s: float
) -> None:
    """Cut off the leader for `cut_s`. Clients still reach it, but it must not serve them."""
    trio = stage.trio
    leader = await trio.leader()
    logs = LogMark(trio.nodes)
    fault_ms = wall_ms()
    cut(leader)
    after_ms = wall_ms()
    strike = Strike(what, leader, fault_ms, after_ms, after_ms)
    sends = stage.load.timeline.sends
    try:
        # A cut that lets short packets through takes effect later than others.
        while wall_ms() < max(sends[-1].ended_ms, after_ms) + WITNESS_AFTER_MS:
            await asyncio.sleep(0.01)
            if wall_ms() > fault_ms + 1_000 * cut_s:
                raise DrillError(f"{what}: node {leader} acknowledged sends all the time")
        strike.leader_ms = max(sends[-1].ended_ms, after_ms) + GATE_MS
        async with Witness(trio.urls[leader], stage) as witness:
            await asyncio.sleep(max(cut_s - (wall_ms() - fault_ms) / 1000, 0.0))
            # If no other node leads by now, the leader may serve again as soon as it is healed.
            leads = not logs.others_led(leader)
            heal(leader)
            await witness.report_answers(f"node {leader}, cut off for {cut_s:.0f} s,", leads=leads)
    finally:
        heal(leader)
    one = await stage.serving_again(strike)
    await stage.all_back(one)


async def cut_follower(stage: Stage, trio: NetworkTrio) -> None:
    """Cut off a follower. The others go on, and its return must not force an election."""
    leader, followers = await trio.others()
    follower = stage.random.choice(followers)
    async with stage.undisturbed("follower cut off", leader) as one:
        trio.cut(follower)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            trio.heal(follower)
        await stage.all_back(one)
