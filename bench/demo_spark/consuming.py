"""The demo's consumers: receive and acknowledge until all has come, and note each arrival."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from delaylog.client import AsyncPlainClient, ClientError

ROWS_MAX = 5_000
LEASE_MS = 30_000
_PAUSE_S = 0.05


@dataclass(slots=True)
class Arrivals:
    """What came: how often each id, and how late after its due time."""

    ids: Counter[str] = field(default_factory=Counter)
    late_ms: list[np.ndarray] = field(default_factory=list)
    early: int = 0

    @property
    def lateness(self) -> np.ndarray:
        return np.concatenate([np.zeros(0), *self.late_ms])


@dataclass(slots=True)
class Deadline:
    """Until when consumers wait, on the monotonic clock; another thread may set it."""

    at_s: float = math.inf


async def consume(url: str, topic: str, count: int, ends: Deadline, loops: int = 2) -> Arrivals:
    """Arrivals of `count` different ids, or as many as came in time."""
    found = Arrivals()
    async with AsyncPlainClient(url) as client:
        await asyncio.gather(*(_loop(client, topic, count, ends, found) for _ in range(loops)))
    return found


async def _loop(
    client: AsyncPlainClient, topic: str, count: int, ends: Deadline, found: Arrivals
) -> None:
    while len(found.ids) < count and time.monotonic() < ends.at_s:
        try:
            batch = await client.receive_bulk(
                topic,
                max=ROWS_MAX,
                wait=timedelta(milliseconds=500),
                lease=timedelta(milliseconds=LEASE_MS),
            )
            if batch.n == 0:
                continue
            late = time.time_ns() / 1e6 - np.asarray(batch.deliver_at_ms)
            found.ids.update(batch.ids)
            found.late_ms.append(late)
            found.early += int(np.count_nonzero(late < 0))
            # Without an answer they come again when the lease is over, and are counted again.
            await client.settle_bulk(topic, "ack", batch.lease)
        except ClientError:
            # The topic is made by the first commit.
            await asyncio.sleep(_PAUSE_S)
