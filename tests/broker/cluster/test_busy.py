"""Leaders on a busy machine: they change at most once a minute without a fault.

Method: three real nodes without raftos, and twenty processes that do nothing but use a processor.
`delaylog drill busy-machine` has nodes with raftos, where it is installed. The times of elections
have to stretch before the load delays anything for as long as they last.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes

BUSY = 20
SETTLE_S = 10.0
MINUTES = 2

pytestmark = pytest.mark.drill


@contextmanager
def busy() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_leaders_stay_under_load(tmp_path: Path) -> None:
    nodes = ThreeNodes(tmp_path, without_raftos=NODES)
    nodes.wait_s = 120

    def epoch() -> int:
        known = [nodes.status(node).get("epoch") for node in NODES]
        return max((each["counter"] for each in known if each), default=0)

    try:
        nodes.start(new_cluster=True)
        nodes.followers()
        with busy():
            time.sleep(SETTLE_S)
            before = nodes.until(epoch)
            time.sleep(60.0 * MINUTES)
            assert nodes.until(epoch) - before <= MINUTES, nodes.tails()
    finally:
        nodes.clean_up()
