"""Stops leaders with SIGSTOP under load, and counts what they hand out when they wake up.

Consumers ask every node for themselves and follow no redirect. Each stop is as long as it is said,
and another node leads before it ends. A message that the stopped node hands out after that counts.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.broker.cluster.three_nodes import NODES, ThreeNodes

CONSUMERS: Final = 12
"""For each node."""
BATCH: Final = 10
PAUSE_S: Final = 0.02
TOPIC: Final = "/v1/topics/t"
RECEIVE: Final[dict[str, Any]] = {"max": 1, "wait_ms": 500, "lease_ms": 60_000}


class Stopping:
    """A cluster, its load, and what old leaders have handed out."""

    def __init__(self, nodes: ThreeNodes) -> None:
        self._nodes = nodes
        self._over = False
        self._deposed: dict[int, float] = {}
        """Nodes that were stopped -> when they continue; another node leads then. Once such a node
        knows of the new epoch, it hands out only what it may.
        """
        self.received = 0
        self.late = 0
        """Messages that a deposed node handed out."""

    async def run(self, rounds: int, seconds: float) -> None:
        """Stop the leader again and again."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            work = [asyncio.create_task(self._send())]
            for node in NODES:
                work += [asyncio.create_task(self._consume(node)) for _ in range(CONSUMERS)]
            try:
                for _ in range(rounds):
                    await self._stop_one(seconds)
            finally:
                self._over = True
                await asyncio.gather(*work)

    async def _stop_one(self, seconds: float) -> None:
        nodes = self._nodes
        old = await asyncio.to_thread(nodes.leader)
        await asyncio.sleep(0.3)
        epoch = await self._epoch(old)
        until_s = time.monotonic() + seconds
        nodes.signal(old, signal.SIGSTOP)
        try:
            others = [node for node in NODES if node != old]
            while not await self._one_leads(others):
                assert time.monotonic() < until_s + 20, nodes.tails()
            await asyncio.sleep(max(until_s - time.monotonic(), 0))
            # What it had sent before the stop has been read by now.
            self._deposed[old] = time.monotonic()
        finally:
            nodes.signal(old, signal.SIGCONT)
        while await self._epoch(old) <= epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        del self._deposed[old]
        await asyncio.to_thread(nodes.followers)

    async def _epoch(self, node: int) -> int:
        """The newest epoch that a node knows of; 0 if it does not answer."""
        return int((await self._status(node)).get("epoch", {}).get("counter", 0))

    async def _one_leads(self, others: list[int]) -> bool:
        found = await asyncio.gather(*map(self._status, others))
        return any(status.get("role") == "leader" for status in found)

    async def _status(self, node: int) -> dict[str, Any]:
        """The cluster as this node sees it; {} if it does not answer."""
        url, timeout = self._nodes.url(node) + "/v1/cluster", aiohttp.ClientTimeout(total=1)
        try:
            async with self._session.get(url, timeout=timeout) as answer:
                return dict(await answer.json())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return {}

    async def _send(self) -> None:
        messages, node = [{"body": "x"}] * BATCH, 1
        while not self._over:
            if await self._post(node, f"{TOPIC}/messages", messages) is None:
                node = node % len(NODES) + 1
            await asyncio.sleep(PAUSE_S)

    async def _consume(self, node: int) -> None:
        receipts: list[object] = []
        while not self._over:
            body = RECEIVE | {"receipts": receipts}
            answer = await self._post(node, f"{TOPIC}/ack_and_receive", body)
            receipts = []
            if not answer or not answer["messages"]:
                await asyncio.sleep(PAUSE_S)
                continue
            self.received += 1
            receipts = [each["receipt"] for each in answer["messages"]]
            if node in self._deposed:
                self.late += len(answer["messages"])
                age_s = time.monotonic() - self._deposed[node]
                print(f"node {node} handed out a message {age_s:.3f} s after it continued")

    async def _post(self, node: int, path: str, body: object) -> dict[str, Any] | None:
        timeout = aiohttp.ClientTimeout(total=20 if path.endswith("receive") else 1)
        try:
            async with self._session.post(
                self._nodes.url(node) + path, json=body, timeout=timeout, allow_redirects=False
            ) as answer:
                found = await answer.json() if answer.status == 200 else None
                return found if found is None or isinstance(found, dict) else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


def stop_leaders(folder: Path, rounds: int, seconds: float) -> Stopping:
    """Run it on a new cluster."""
    nodes = ThreeNodes(folder)
    try:
        nodes.start(new_cluster=True)
        nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
        stopping = Stopping(nodes)
        asyncio.run(stopping.run(rounds, seconds))
        return stopping
    finally:
        nodes.clean_up()
