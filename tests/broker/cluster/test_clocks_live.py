"""Three real nodes, one of them with a wrong clock: who says so, and who leads after a failure.

Method: the processes of the drill `clock-step`, whose wall clock a file sets.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delaylog.broker.drills.faults.machines import SteppedTrio
from delaylog.broker.drills.trio import NODES

WAIT_S = 30.0
WRONG = 3


async def status(trio: SteppedTrio, node: int) -> Any:
    answered, text = await trio.get(node, "/v1/cluster")
    return json.loads(text) if answered == 200 else {}


async def until(trio: SteppedTrio, node: int, holds: Callable[[Any], bool]) -> Any:
    """The status of a node, once it is as it has to be."""
    end = time.monotonic() + WAIT_S
    while True:
        found = await status(trio, node)
        if found and holds(found):
            return found
        assert time.monotonic() < end, found
        await asyncio.sleep(0.05)


def off(found: Any) -> list[int]:
    return [member["node"] for member in found["members"] if member["clock_off"]]


def accused(found: Any) -> bool:
    """Whether all three clocks are known, and the wrong one is marked."""
    return off(found) == [WRONG] and found["clock_offset_ms"] is not None


def measured(found: Any) -> bool:
    """Whether it is known how wrong it is; while a machine stalls, nobody measures that well."""
    ahead = {each["node"]: each["clock_ahead_ms"] for each in found["members"]}
    return accused(found) and abs(ahead[WRONG] - ahead[1] + 5_000) < 200


def judged(found: Any) -> bool:
    """Whether the node with the wrong clock knows that it is not fit to lead."""
    return any(each["node"] == WRONG and each["unfit"] == "clock" for each in found["members"])


def test_a_node_with_a_wrong_clock(tmp_path: Path) -> None:
    """All name it; it does not come to lead when the leader dies; once it is set all is well."""

    async def main() -> None:
        async with SteppedTrio(tmp_path) as trio:
            assert isinstance(trio, SteppedTrio)
            trio.step(WRONG, -5_000)
            await trio.found()
            for node in NODES:
                await until(trio, node, measured)
            await until(trio, WRONG, lambda found: found["clock_stands_aside"])
            # An election takes less than the time to its next look at its own fitness.
            await until(trio, WRONG, judged)
            await until(trio, WRONG, lambda found: abs(found["clock_offset_ms"] + 5_000) < 200)
            if await trio.leader() == WRONG:
                await trio.hand_over(WRONG, 1)
            leader = await trio.leader((1, 2))
            await trio.nodes[leader].kill()
            right = 3 - leader
            assert await trio.leader((right, WRONG)) == right
            found = await status(trio, WRONG)
            assert found["clock_stands_aside"]
            assert found["missing_voters"] == [f"node-{leader}"]
            await trio.start(leader)
            await until(trio, right, accused)
            trio.step(WRONG, 0)
            for node in NODES:
                await until(trio, node, lambda found: off(found) == [])
            await until(trio, WRONG, lambda found: not found["clock_stands_aside"])

    asyncio.run(main())
