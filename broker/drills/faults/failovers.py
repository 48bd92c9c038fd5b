"""Many unplanned failovers, with many idempotency keys in memory: what a failover leaks adds up.

The leader is stopped, not killed, since the end of a process would hide what it has leaked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final

from delaylog.broker.drills.faults.pauses import stop_leader
from delaylog.broker.drills.rounds import Stage

KEYS: Final = 50_000
PATH: Final = "/v1/topics/drill-keys/messages"
DELAY_MS: Final = 24 * 3_600_000
"""The messages stay, and nobody receives them."""
CALLS: Final = 64
"""Sends of keys at the same time."""
PARTS: Final = 40
"""A broker forgets a key that was not used for ten minutes, so every round uses a part of them."""
STOPPED_S: Final = 1.2
SETTLE_S: Final = 1.0
"""Until the node that was stopped has freed what it had as the leader."""


async def failovers(stage: Stage) -> None:
    """Stop the leader for a moment, so that another node leads."""
    at = len(stage.rounds)
    await _use_keys(stage, range(at % PARTS, KEYS, PARTS) if at else range(KEYS))
    await stop_leader(stage, STOPPED_S)
    await asyncio.sleep(SETTLE_S)


async def _use_keys(stage: Stage, keys: Iterable[int]) -> None:
    left = iter(keys)
    body = json.dumps({"body": "one", "delay_ms": DELAY_MS}).encode()

    async def use_some() -> None:
        for key in left:
            headers = {"Content-Type": "application/json", "Idempotency-Key": f"drill {key}"}
            await stage.load.insist(PATH, body, headers, method="POST")

    await asyncio.gather(*(use_some() for _ in range(CALLS)))
