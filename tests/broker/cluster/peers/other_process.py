"""A node in a process of its own, to be stopped and killed: node 1, which counts what comes.

Arguments: the ports of nodes 0 and 1. It answers each message with how many have come.
"""

from __future__ import annotations

import asyncio
import sys

from delaylog.broker.cluster.peers import PeerTransport
from delaylog.broker.cluster.peers.transport import PeerConfig, PeerHost
from delaylog.broker.host.machine import REAL
from delaylog.replication.messages import Hello
from tests.broker.cluster.peers.rig import CLUSTER, KEY, AnyFolder, ack


async def main(ports: list[int]) -> None:
    addresses = {node: ("127.0.0.1", port) for node, port in enumerate(ports)}
    count = 0

    def answer(peer: int, message: object) -> None:
        nonlocal count
        count += 1
        transport.send(peer, ack(count))

    transport = PeerTransport(
        PeerConfig(1, CLUSTER, lambda: (KEY,), addresses, addresses[1]),
        PeerHost(
            lambda: Hello(CLUSTER, 1, True, 0, 0),
            AnyFolder(),
            answer,
            lambda peer: None,
            lambda peer, ended: None,
        ),
        REAL,
    )
    await transport.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
