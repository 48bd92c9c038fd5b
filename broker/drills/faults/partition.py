"""Partition: the leader is cut off from both followers, or one follower from the others."""

from __future__ import annotations

import asyncio
from typing import Final

from delaylog.broker.drills.faults.namespaces import NetworkTrio
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.witness import Witness
from delaylog.replication.timing import Timing

CUT_S: Final = 2.0
GATE_MS: Final = Timing().gate_ms
WITNESS_AFTER_S: Final = 0.1
"""By then the gate has closed: the leader that was cut off must not deliver messages any more."""


async def partition(stage: Stage) -> None:
    """Cut off the leader and a follower, in turn."""
    if len(stage.rounds) % 2 == 0:
        await cut_leader(stage)
    else:
        await cut_follower(stage)


async def cut_leader(stage: Stage) -> None:
    """Cut off the leader. Clients still reach it, but it must not serve them."""
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    leader = await trio.leader()
    fault_ms = wall_ms()
    trio.cut(leader)
    after_ms = wall_ms()
    try:
        await asyncio.sleep(WITNESS_AFTER_S)
        async with Witness(trio.urls[leader], stage) as witness:
            strike = Strike("leader cut off", leader, fault_ms, after_ms, after_ms + GATE_MS)
            one = await stage.serving_again(strike)
            await asyncio.sleep(max(CUT_S - (wall_ms() - fault_ms) / 1000, 0.0))
            trio.heal(leader)
            await witness.report_answers(f"node {leader}, cut off for {CUT_S:.0f} s,")
    finally:
        trio.heal(leader)
    await stage.all_back(one)


async def cut_follower(stage: Stage) -> None:
    """Cut off a follower. The others go on, and its return must not force an election."""
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    leader, followers = await trio.others()
    follower = stage.random.choice(followers)
    async with stage.undisturbed("follower cut off", leader) as one:
        trio.cut(follower)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            trio.heal(follower)
        await stage.all_back(one)
