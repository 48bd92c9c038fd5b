"""The collector in a process of its own: it looks at what is new, and finds cycles there.

A process of its own, as freezing cannot be taken back for some objects only.
"""

from __future__ import annotations

import sys

from tests.programs import run_program

PROGRAM = """
import gc
from time import thread_time
from delaylog.broker.process import parts

parts.PASS_SECONDS_MAX = {limit}
before = len(gc.get_objects())
watch = parts.Collector()
watch.start()
assert len(gc.get_objects()) < before // 10, "what was there is looked at"

kept = [[number] for number in range(300_000)]
looked_at = len(gc.get_objects())

class Node:
    gone = 0
    def __del__(self):
        Node.gone += 1

for _ in range(1_000):
    node = Node()
    node.itself = node
del node
gc.collect()
watch.stop()
assert watch._note not in gc.callbacks
print(watch.frozen > 0, looked_at > 250_000, Node.gone)
"""


def run(limit: float) -> str:
    told = run_program(sys.executable, "-c", PROGRAM.format(limit=limit), check=True)
    return told.stdout.strip()


def test_a_large_heap_is_frozen_piece_by_piece_and_new_cycles_are_still_found() -> None:
    assert run(0.0) == "True False 1000"


def test_a_small_heap_is_collected_as_ever() -> None:
    assert run(1e9) == "False True 1000"
