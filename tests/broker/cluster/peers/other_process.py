"""A node in a process of its own, to be stopped and killed: node 1, which counts what comes.

Arguments: the ports of nodes 0 and 1. It answers each message with how many have come.
"""

from __future__ import annotations

import asyncio
import sys

from tests.broker.cluster.peers.rig import Rig, ack


async def main(ports: list[int]) -> None:
    rig = Rig()
    rig.addresses = {node: ("127.0.0.1", port) for node, port in enumerate(ports)}
    node = await rig.start(1)
    node.on_message = lambda peer, _: node.transport.send(peer, ack(len(node.messages)))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
