"""A peer that is stopped, goes on, is killed and comes back, as a real process.

Method: SIGSTOP, SIGCONT and SIGKILL for a child; what the node here is told, and when.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from delaylog.broker.cluster.peers import Refused
from tests.broker.cluster.peers.rig import Rig, ack
from tests.waiting import until

ROOT = Path(__file__).parents[4]


def child(rig: Rig) -> subprocess.Popen[bytes]:
    ports = [str(port) for _, port in rig.addresses.values()]
    code = f"import sys; sys.path.append({str(ROOT)!r}); import runpy; runpy.run_module("
    code += "'tests.broker.cluster.peers.other_process', run_name='__main__')"
    return subprocess.Popen([sys.executable, "-c", code, *ports])


async def test_stopped_and_killed(rig: Rig) -> None:
    """Half a second of silence is death; whoever comes back is connected again."""
    process = child(rig)
    try:
        node = await rig.start(0)
        loop = asyncio.get_running_loop()
        await until(lambda: node.transport.connected() == {1})
        asked = loop.time()
        node.transport.send(1, ack(1))
        await until(lambda: node.messages == [(1, ack(1))])

        # Since that answer, which came after `asked`, the silence lasts.
        process.send_signal(signal.SIGSTOP)
        stopped = loop.time()
        await until(lambda: node.story == [("up", 1), ("down", 1)])
        assert loop.time() - asked > 0.45
        assert loop.time() - stopped < 5
        assert node.refused[Refused.SILENT] == 1
        assert not node.ended, "it may still be there"
        process.send_signal(signal.SIGCONT)
        await until(lambda: node.story[2:] == [("up", 1)])
        node.transport.send(1, ack(1))
        await until(lambda: node.messages[1:] == [(1, ack(2))])

        process.kill()
        process.wait()
        await until(lambda: node.story[3:] == [("down", 1)])
        assert node.ended == [1], "the kernel has closed its connection"
        process = child(rig)
        await until(lambda: node.story[4:] == [("up", 1)])
        node.transport.send(1, ack(1))
        await until(lambda: node.messages[2:] == [(1, ack(1))])
    finally:
        process.kill()
        process.wait()
