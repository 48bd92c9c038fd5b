"""Real oracles over real UDP in one event loop, with wires that can be cut and listened to.

Each node listens on a port of its own, and its members' addresses are those of relays: what is sent
to a relay arrives unless that way is cut, and every datagram is kept, so that it can be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from delaylog.client.child_broker import free_port
from delaylog.replication.raftos_oracle import OracleSettings, RaftosOracle
from delaylog.replication.raftos_oracle.settings import Address
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import OsFileSystem

CLUSTER_ID = bytes(range(16))
SECRET = bytes(range(100, 132))
PATIENCE_S = 60
"""For a machine with much else to do; what is awaited takes well below a second."""


def settings(**more: Any) -> OracleSettings:
    """Of a member of the test cluster."""
    secret = more.pop("secret", SECRET)
    return OracleSettings(**{"cluster_id": CLUSTER_ID, "secrets": lambda: (secret,), **more})


class Relay(asyncio.DatagramProtocol):
    """The address of one node, as the others know it."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self.transport: asyncio.DatagramTransport
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        source = self._cluster.node_at(addr[1])
        if source is not None and (source, self._node) not in self._cluster.cuts:
            self._cluster.passed.append((source, self._node, data))
            self.deliver(data)

    def deliver(self, data: bytes) -> None:
        """To the node itself."""
        self.transport.sendto(data, self._cluster.listens[self._node])


class Cluster(AbstractAsyncContextManager["Cluster"]):
    """Several oracles and the wires between them. At the end nothing is left in the loop."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.fs: FileSystem = OsFileSystem()
        self.nodes = range(count)
        self.listens: dict[int, Address] = {node: ("127.0.0.1", free_port()) for node in self.nodes}
        self.members: dict[int, Address] = {}
        self.cuts: set[tuple[int, int]] = set()
        """(source, target) of ways on which nothing arrives."""
        self.passed: list[tuple[int, int, bytes]] = []
        """Every datagram that arrived: (source, target, bytes)."""
        self.oracles: dict[int, RaftosOracle] = {}
        self.relays: dict[int, Relay] = {}

    def node_at(self, port: int) -> int | None:
        return next((node for node, (_, at) in self.listens.items() if at == port), None)

    @property
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def folder_of(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    async def __aenter__(self) -> Cluster:
        loop = asyncio.get_running_loop()
        self._before = asyncio.all_tasks()
        for node in self.nodes:
            relay = Relay(self, node)
            await loop.create_datagram_endpoint(lambda r=relay: r, local_addr=("127.0.0.1", 0))
            self.relays[node] = relay
            self.members[node] = relay.transport.get_extra_info("sockname")
            self.folder_of(node).mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *error: object) -> None:
        for oracle in self.oracles.values():
            await oracle.stop()
        for relay in self.relays.values():
            relay.transport.close()
            await relay.closed
        assert asyncio.all_tasks() == self._before

    def make(self, node: int, own: OracleSettings | None = None) -> RaftosOracle:
        """A node's oracle, not started yet."""
        chosen = replace(own or settings(), listen=self.listens[node])
        folder = str(self.folder_of(node))
        oracle = RaftosOracle(self.fs, folder, node, self.members, chosen)
        self.oracles[node] = oracle
        return oracle

    async def start(self, *nodes: int, **more: Any) -> None:
        for node in nodes or self.nodes:
            await self.make(node, settings(**more)).start()

    async def restart(self, node: int, **more: Any) -> None:
        await self.oracles[node].stop()
        await self.start(node, **more)

    def isolate(self, node: int) -> None:
        """Nothing comes to it or from it."""
        for other in self.nodes:
            self.cuts |= {(node, other), (other, node)}

    def leaders(self) -> list[int]:
        """Who is told to lead."""
        return [node for node, oracle in self.oracles.items() if oracle.suggests(self.now_ms)]

    def views(self) -> set[int | None]:
        """Who is thought to lead, by all."""
        return {oracle.leader(self.now_ms) for oracle in self.oracles.values()}

    async def elected(self, *but: int) -> int:
        """Who leads, once one node does that is none of `but` and all others that are reachable
        agree.
        """
        asked = [node for node in self.nodes if node not in but and node in self.oracles]
        chosen: list[int] = []

        def agreed() -> bool:
            # One time for all that is asked: a machine may stall between two looks.
            now_ms = self.now_ms
            views = {self.oracles[node].leader(now_ms) for node in asked}
            if len(views) != 1 or not views <= set(asked):
                return False
            (leader,) = views
            assert leader is not None
            assert self.oracles[leader].suggests(now_ms)
            chosen.append(leader)
            return True

        await self.until(agreed)
        return chosen[0]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110 (some of it changes by time alone)
                await asyncio.sleep(0.005)

    def refused(self) -> dict[str, int]:
        """By all nodes together, only what occurred."""
        sums: dict[str, int] = {}
        for oracle in self.oracles.values():
            for reason, count in oracle.refused.items():
                if count:
                    sums[reason] = sums.get(reason, 0) + count
        return sums
