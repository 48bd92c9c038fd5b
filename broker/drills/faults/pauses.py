"""SIGSTOP: the leader is stopped for some time and then continues."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from delaylog.broker.drills.node_log import LogMark
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.witness import Witness

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
            await witness.report_answers(who, leads=not logs.others_led(leader))
    finally:
        node.send_signal(signal.SIGCONT)
    one = await stage.serving_again(strike)
    await stage.all_back(one)
