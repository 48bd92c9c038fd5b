"""A cluster of three nodes on loopback, each a separate process, in the drill's folder.

Writes the cluster file and the secret, finds free ports, starts and stops nodes, and finds the
leader. The drill decides what is done to the nodes, and when.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from delaylog.broker.drills.kinds import DrillError
from delaylog.client.child_broker import BrokerStartError, ChildBroker, free_ports

NODES: Final = (1, 2, 3)
LOOPBACK: Final = "127.0.0.1"
LOOK_EVERY_S: Final = 0.02
LOOK_TIMEOUT_S: Final = 0.5
LEADER_DEADLINE_S: Final = 30.0
"""Ends a drill that hangs. It is long, because the duration of elections is measured elsewhere."""
POST_TIMEOUT_S: Final = 10.0
REFUSED_DEADLINE_S: Final = 10.0
CONFLICT: Final = 409
CAUGHT_UP_DEADLINE_S: Final = 60.0
VOTERS_DEADLINE_S: Final = 60.0


class Trio:
    """The three nodes. As a context manager it kills all of them at the end of the block."""

    def __init__(
        self,
        folder: Path,
        *,
        hosts: dict[int, tuple[str, str]] | None = None,
        program: Callable[[int], Sequence[str] | None] = lambda _: None,
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        tables: str = "",
    ) -> None:
        """`hosts`: each node's addresses for clients and for the other nodes; default: loopback.

        `program`: the command to run in place of `delaylog`, if not None. `tls`: how clients trust
        the nodes, if these serve HTTPS. `tables`: more tables of the cluster file.
        """
        self.tls = tls
        self.folder = folder
        self._hosts = hosts or dict.fromkeys(NODES, (LOOPBACK, LOOPBACK))
        self._ports = free_ports(2 * len(NODES)) if hosts is None else [8711, 8712] * len(NODES)
        self._session: aiohttp.ClientSession | None = None
        cluster = folder / "cluster.toml"
        self._write_files(cluster, tables)
        if hosts is not None:
            # Only the drill's own processes can reach these namespaces.
            options = ("--insecure=no-auth,no-tls", *options)
        self.nodes = {
            node: ChildBroker(
                folder / f"node-{node}",
                host=self._hosts[node][0],
                port=self._http_port(node),
                program=program(node),
                options=("--cluster", str(cluster), "--node", str(node), *options),
            )
            for node in NODES
        }
        self.urls = {node: self._url(node) for node in NODES}

    def _http_port(self, node: int) -> int:
        return self._ports[2 * NODES.index(node)]

    def _url(self, node: int) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self._hosts[node][0]}:{self._http_port(node)}"

    def _write_files(self, cluster: Path, tables: str) -> None:
        secret = self.folder / "cluster.secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        lines = ['cluster = "drill"', f'secret_file = "{secret.name}"']
        for node in NODES:
            _, peer = self._hosts[node]
            lines += [
                f"[members.{node}]",
                f'peer = "{peer}:{self._ports[2 * NODES.index(node) + 1]}"',
                f'http = "{self._url(node).removeprefix("http://")}"',
            ]
        cluster.write_text("\n".join([*lines, tables]))

    async def __aenter__(self) -> Trio:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, ssl=self.tls or True),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.nodes.values():
            if broker.running:
                with suppress(ProcessLookupError):
                    broker.send_signal(signal.SIGCONT)
            await broker.kill()
        assert self._session is not None
        await self._session.close()

    # ------------------------------------------------------------------ life

    async def found(self) -> int:
        """Start all nodes as a new cluster, wait until all of them vote, and return the leader.

        A node that connects after the others have founded the cluster joins as a learner. Until it
        is readmitted, the cluster does not survive the loss of a node.
        """
        await self.start_all("--new-cluster")
        return await self.all_vote()

    async def start_all(self, *options: str) -> None:
        """Start all nodes that are down, at the same time, and wait until they are ready."""
        down = [node for node, broker in self.nodes.items() if not broker.running]
        await asyncio.gather(*(self.start(node, *options) for node in down))

    async def start(self, node: int, *options: str) -> None:
        """Start one node. Raises DrillError if it ends instead."""
        try:
            await self.nodes[node].start(*options)
        except BrokerStartError as error:
            raise DrillError(f"node {node} did not start: {error}") from None

    def check(self, expected: Sequence[int] = NODES) -> None:
        """Raise DrillError if a node has ended by itself."""
        for node in expected:
            broker = self.nodes[node]
            if not broker.running:
                raise DrillError(f"node {node} ended by itself\n{broker.log_tail()}")

    # ------------------------------------------------------------------ looking

    async def leader(self, among: Sequence[int] = NODES) -> int:
        """Wait until a node leads, and return it. Raises DrillError."""
        deadline = time.monotonic() + LEADER_DEADLINE_S
        while time.monotonic() < deadline:
            for node in among:
                if await self._leads(node):
                    return node
            await asyncio.sleep(LOOK_EVERY_S)
        raise DrillError(f"no node became leader within {LEADER_DEADLINE_S:.0f} s")

    async def all_vote(self) -> int:
        """Wait until a leader counts all nodes as voters, and return it. Raises DrillError."""
        deadline = time.monotonic() + VOTERS_DEADLINE_S
        members: list[dict[str, object]] = []
        while time.monotonic() < deadline:
            leader = await self.leader()
            status, text = await self.get(leader, "/v1/cluster")
            if status == 200:
                members = json.loads(text)["members"]
                if all(member["voter"] for member in members):
                    return leader
            await asyncio.sleep(LOOK_EVERY_S)
        away = [member["node"] for member in members if not member["voter"]]
        raise DrillError(f"nodes {away} did not become voters within {VOTERS_DEADLINE_S:.0f} s")

    async def others(self) -> tuple[int, list[int]]:
        """The leader, and the nodes that do not lead."""
        leader = await self.leader()
        return leader, [node for node in NODES if node != leader]

    async def hand_over(self, leader: int, target: int) -> None:
        """Ask the leader to hand over to `target`. Raises DrillError if it does not.

        A refusal is repeated for some seconds: on a busy machine a target may lag for a moment.
        """
        end = time.monotonic() + REFUSED_DEADLINE_S
        while True:
            status, text = await self.post(leader, "/v1/cluster/handover", {"to": target})
            if status == 200:
                return
            if status != CONFLICT or time.monotonic() > end:
                raise DrillError(f"node {leader} did not hand over to node {target}: {text[:300]}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _leads(self, node: int) -> bool:
        status, _ = await self.get(node, "/v1/topics")
        return status == 200

    async def caught_up(self, node: int) -> float:
        """Wait until a node has applied all that the leader has now; return the seconds it took."""
        began = time.monotonic()
        goal: int | None = None
        while time.monotonic() < began + CAUGHT_UP_DEADLINE_S:
            if goal is None:
                leader = await self.leader()
                goal = await self.position(leader)
            at = await self.position(node)
            if goal is not None and at is not None and at >= goal:
                return time.monotonic() - began
            await asyncio.sleep(LOOK_EVERY_S)
        late = f"node {node} had not caught up after {CAUGHT_UP_DEADLINE_S:.0f} s"
        raise DrillError(f"{late}\n{self.nodes[node].log_tail()}")

    async def position(self, node: int) -> int | None:
        """Position up to which a node has applied its log; None if it does not answer."""
        status, text = await self.get(node, "/metrics")
        if status != 200:
            return None
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "delaylog_log_applied_position":
                return int(float(value))
        return None

    async def get(self, node: int, path: str) -> tuple[int, str]:
        """Status and body of the answer; status 0 if there is none."""
        return await self._ask("GET", node, path, LOOK_TIMEOUT_S)

    async def post(self, node: int, path: str, shape: object = None) -> tuple[int, str]:
        """Status and body of the answer to a control call; status 0 if there is none."""
        return await self._ask("POST", node, path, POST_TIMEOUT_S, json=shape)

    async def _ask(
        self, method: str, node: int, path: str, limit_s: float, **more: Any
    ) -> tuple[int, str]:
        assert self._session is not None
        url, timeout = self.urls[node] + path, aiohttp.ClientTimeout(total=limit_s)
        try:
            async with self._session.request(
                method, url, timeout=timeout, allow_redirects=False, **more
            ) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, ""
