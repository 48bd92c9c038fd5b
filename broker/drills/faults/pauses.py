"""SIGSTOP: the leader is stopped for two seconds and then continues."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.witness import Witness

STOPPED_S: Final = 2.0


async def stop_leader(stage: Stage) -> None:
    """Stop the leader. When it continues, it finds calls in its sockets and must not serve them."""
    trio = stage.trio
    leader = await trio.leader()
    node = trio.nodes[leader]
    fault_ms = wall_ms()
    node.send_signal(signal.SIGSTOP)
    try:
        async with Witness(trio.urls[leader], stage) as witness:
            one = await stage.serving_again(Strike("", leader, fault_ms, wall_ms(), fault_ms))
            left_s = STOPPED_S - (wall_ms() - fault_ms) / 1000
            await asyncio.sleep(max(left_s, 0.0))
            node.send_signal(signal.SIGCONT)
            await witness.report_answers(f"node {leader}, stopped for {STOPPED_S:.0f} s,")
    finally:
        node.send_signal(signal.SIGCONT)
    await stage.all_back(one)
